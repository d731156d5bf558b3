"""The ranges of what can be asked for, and the sentence for what lies outside them."""

from __future__ import annotations

import math
from typing import NamedTuple

from app.engine.protocol import MAX_DRAFT_LENGTH, SAMPLERS, GenerationRequest, SamplingParams
from app.errors import UsageError

MOST_BIAS = 1000.0


class Range(NamedTuple):
    name: str  # in words
    low: float
    high: float
    is_whole: bool = False

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def clamped(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def __str__(self) -> str:
        return f"between {self.low:g} and {int(self.high) if self.is_whole else format(self.high, 'g')}"


# By the field's name in SamplingParams.
RANGES = {
    "temperature": Range("temperature", 0, 100),
    "top_k": Range("top-k", 0, 2**31, is_whole=True),
    "top_p": Range("top-p", 0, 1),
    "min_p": Range("min-p", 0, 1),
    "repeat_penalty": Range("repeat penalty", 0.01, 100),
    "repeat_last_n": Range("number of tokens for the penalties", 0, 65_536, is_whole=True),
    "seed": Range("seed", 0, 2**63, is_whole=True),
    "frequency_penalty": Range("frequency penalty", -100, 100),
    "presence_penalty": Range("presence penalty", -100, 100),
    "typical_p": Range("typical-p", 0, 1),
    "top_n_sigma": Range("top-n-sigma", 0, 100),
    "dynatemp_range": Range("range of the dynamic temperature", 0, 100),
    "dynatemp_exponent": Range("exponent of the dynamic temperature", 0, 100),
    "dry_multiplier": Range("DRY multiplier", 0, 100),
    "dry_base": Range("DRY base", 1, 100),
    "dry_allowed_length": Range("allowed length of DRY", 0, 65_536, is_whole=True),
    "dry_last_n": Range("number of tokens for DRY", 0, 65_536, is_whole=True),
    "xtc_probability": Range("probability of XTC", 0, 1),
    "xtc_threshold": Range("threshold of XTC", 0, 1),
    "mirostat": Range("version of mirostat", 0, 2, is_whole=True),
    "mirostat_tau": Range("tau of mirostat", 0, 100),
    "mirostat_eta": Range("eta of mirostat", 0, 10),
}
_MAX_TOKENS = Range("number of tokens", 1, 2**31, is_whole=True)
_DRAFT_LENGTH = Range("draft length", 0, MAX_DRAFT_LENGTH, is_whole=True)


def validate(request: GenerationRequest) -> None:
    """Raises UsageError that names the setting and its range."""
    params = request.sampling
    for field, limits in RANGES.items():
        _check(limits, getattr(params, field))
    _check(_MAX_TOKENS, request.max_tokens)
    _check(_DRAFT_LENGTH, request.speculation.draft_length)
    check_order(params.order)
    _check_bias(params)
    if not all(params.dry_breakers):
        raise UsageError("A sequence breaker of DRY is empty; leave it out.")


def check_order(order: tuple[str, ...]) -> None:
    """Raises UsageError for a sampler that does not exist or stands there twice."""
    for name in order:
        if name not in SAMPLERS:
            raise UsageError(f"There is no sampler {name!r}. The samplers are: {', '.join(SAMPLERS)}.")
    if len(set(order)) < len(order):
        raise UsageError("A sampler stands twice in the order of the samplers; name each once.")


def _check(limits: Range, value: float | None) -> None:
    if value is not None and not limits.holds(value):
        raise UsageError(f"The {limits.name} is {value}; it must lie {limits}.")


def _check_bias(params: SamplingParams) -> None:
    for token, bias in params.logit_bias:
        if token < 0:
            raise UsageError(f"The logit bias names token {token}; token ids begin at 0.")
        if math.isnan(bias) or abs(bias) > MOST_BIAS:
            raise UsageError(
                f"The logit bias of token {token} is {bias}; it must lie between {-MOST_BIAS:g} and {MOST_BIAS:g}."
            )
