"""What is known of one pair on one machine: costs by batch size, acceptance by drafter and by setting.

It is plain data, so that a front end can keep it between runs and give it back with the pair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.engine.acceptance import BINS, HINTS, Acceptance
from app.engine.costs import BatchCosts
from app.engine.protocol import SamplingParams, VerifyRule
from app.engine.rounds import DrafterKind

VERSION = 1
MOST_PROBING, LEAST_PROBING = 0.02, 0.001


@dataclass
class Experience:
    """Costs of the target (rounds without the draft's decodes) and of the draft, and how well drafts are accepted."""

    target: BatchCosts = field(default_factory=BatchCosts)
    draft: BatchCosts = field(default_factory=BatchCosts)
    acceptances: dict[str, Acceptance] = field(default_factory=dict)
    probing: float = MOST_PROBING  # share of the time that may be spent to see whether drafting pays again
    budget_s: float | None = None  # what has gathered of it

    def acceptance(self, kind: DrafterKind, setting: str) -> Acceptance:
        """Of one drafter at one setting; made when first asked for."""
        key = f"{kind} {setting}"
        if key not in self.acceptances:
            self.acceptances[key] = Acceptance()
        return self.acceptances[key]

    def to_plain(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "target": _costs_to_plain(self.target),
            "draft": _costs_to_plain(self.draft),
            "probing": round(self.probing, 5),
            "acceptance": {
                key: {
                    "tested": a.tested.round(3).tolist(),
                    "accepted": a.accepted.round(3).tolist(),
                    "usual": a.usual.round(3).tolist(),
                }
                for key, a in self.acceptances.items()
            },
        }

    @classmethod
    def from_plain(cls, plain: object) -> Experience:
        """Anything that is not this version's data gives an empty experience: it is learned again."""
        try:
            if not isinstance(plain, dict) or plain["version"] != VERSION:
                return cls()
            made = cls(_costs_from_plain(plain["target"]), _costs_from_plain(plain["draft"]))
            made.probing = min(MOST_PROBING, max(LEAST_PROBING, _positive(plain["probing"])))
            for key, kept in plain["acceptance"].items():
                acceptance = Acceptance()
                acceptance.tested, acceptance.accepted = (
                    _counts(kept["tested"], (BINS,)),
                    _counts(kept["accepted"], (BINS,)),
                )
                acceptance.usual = _counts(kept["usual"], (HINTS, 2, BINS))
                made.acceptances[str(key)] = acceptance
        except (KeyError, TypeError, ValueError, AttributeError):
            return cls()
        return made


def setting_of(sampling: SamplingParams, verify: VerifyRule) -> str:
    """What acceptance depends on beside the pair: temperature in steps of a tenth, and the rule."""
    return f"{verify} {max(0.0, round(sampling.temperature, 1))}"


def _costs_to_plain(costs: BatchCosts) -> dict[str, Any]:
    return {
        "unit_s": costs.unit_s,
        "ratios": {str(n): round(ratio, 4) for n, ratio in costs.ratios.items()},
        "bulk": costs.bulk,
    }


def _costs_from_plain(plain: dict[str, Any]) -> BatchCosts:
    unit, bulk = plain["unit_s"], plain["bulk"]
    ratios = {int(n): _positive(ratio) for n, ratio in plain["ratios"].items() if int(n) >= 1}
    return BatchCosts(
        None if unit is None else _positive(unit), ratios if unit else {}, None if bulk is None else _positive(bulk)
    )


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < 1e6:
        raise ValueError(value)
    return number


def _counts(values: Any, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
    counts = np.asarray(values, dtype=np.float64)
    if counts.shape != shape or not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueError("counts")
    return counts
