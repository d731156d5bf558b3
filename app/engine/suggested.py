"""The sampling that a model's file suggests, and what becomes of it beside what the user has chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from app.engine.limits import RANGES
from app.engine.protocol import SamplingParams

# llama.cpp's keys (llama_model_meta_key_str) and our names. Its `sequence` is not followed: an order is no number.
_KEYS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}


def suggested_sampling(metadata: Callable[[str], str | None]) -> dict[str, float]:
    """Values by the names of SamplingParams, in their ranges. What is no number is passed over.

    `metadata` gives the header's value of a key as text.
    """
    found = {}
    for key, name in _KEYS.items():
        value = _number(metadata(f"general.sampling.{key}"))
        if value is not None:
            limits = RANGES[name]
            found[name] = limits.clamped(round(value) if limits.is_whole else value)
    return found


def sampling_of(suggested: Mapping[str, float], chosen: Mapping[str, Any]) -> SamplingParams:
    """What the user has chosen, else what the model suggests, else ours. A choice of None is none."""
    values: dict[str, Any] = {
        name: int(value) if RANGES[name].is_whole else value for name, value in suggested.items() if name in RANGES
    }
    values |= {name: value for name, value in chosen.items() if value is not None}
    return SamplingParams(**values)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
