"""From the settings to the target's sampling: what the user chose, else what the model suggests, else the usual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from app.engine import suggested as suggestions
from app.engine.limits import MOST_BIAS
from app.engine.protocol import SAMPLERS, SamplingParams
from app.storage.settings import Settings

_NAMES = {f.name for f in fields(SamplingParams)} & {f.name for f in fields(Settings)}


def sampling_of(settings: Settings, suggested: Mapping[str, float]) -> SamplingParams:
    """`suggested` is the loaded target's (`ModelInfo.suggested`)."""
    chosen: dict[str, Any] = {name: value for name in _NAMES if (value := getattr(settings, name)) is not None}
    if settings.order is not None:
        chosen["order"] = complete(settings.order)
    if settings.logit_bias is not None:
        chosen["logit_bias"] = tuple(settings.logit_bias)
    return suggestions.sampling_of(suggested, chosen)


def complete(order: Sequence[str]) -> tuple[str, ...]:
    """An order of all samplers of this version: unknown names go, missing ones come last instead of being off."""
    known = tuple(dict.fromkeys(name for name in order if name in SAMPLERS))
    return known + tuple(name for name in SAMPLERS if name not in known)


def bias_of(text: str) -> list[tuple[int, float]]:
    """What "198=-5, 2=1.5" says. Raises ValueError with a sentence for people."""
    found: dict[int, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        token, equals, bias = part.partition("=")
        try:
            if not equals or not token.strip().isdecimal() or not abs(float(bias)) <= MOST_BIAS:
                raise ValueError
        except ValueError:
            limit = f"{MOST_BIAS:g}"
            raise ValueError(
                f"“{part}” is no token id and bias. Write 198=-5, with a bias from -{limit} to {limit}."
            ) from None
        found[int(token)] = float(bias)
    return list(found.items())


def bias_text(bias: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{token}={value:g}" for token, value in bias)
