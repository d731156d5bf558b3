"""Counters of speculation. Ratios are computed where they are shown and are None for 0/0 (DESIGN, section 2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from app.engine.rounds import Round, RoundTimes


@dataclass
class SpeculationStats:
    """What an answer's rounds add up to. The single mutator is `observe`."""

    rounds: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    rejected: int = 0
    discarded: int = 0
    rounds_with_draft: int = 0
    rounds_rejected: int = 0  # rounds ended by a rejection
    times: RoundTimes = field(default_factory=RoundTimes)
    draft_lengths: Counter[int] = field(default_factory=Counter)
    accepted_at: list[int] = field(default_factory=list)  # [i]: rounds with more than i accepted
    tested_at: list[int] = field(default_factory=list)  # [i]: rounds whose draft was longer than i

    def observe(self, r: Round) -> None:
        """Add one round."""
        self.rounds += 1
        self.tokens += len(r.tokens)
        self.drafted += r.drafted
        self.accepted += r.accepted
        self.rejected += r.rejected
        self.discarded += r.discarded
        self.rounds_with_draft += r.drafted > 0
        self.rounds_rejected += r.rejected > 0
        self.draft_lengths[r.drafted] += 1
        self.times = RoundTimes(
            self.times.draft + r.times.draft, self.times.verify + r.times.verify, self.times.sample + r.times.sample
        )
        missing = r.drafted - len(self.tested_at)
        self.tested_at += [0] * missing
        self.accepted_at += [0] * missing
        for i in range(r.drafted):
            self.tested_at[i] += 1
            self.accepted_at[i] += r.accepted > i

    @property
    def draft_acceptance_rate(self) -> float | None:
        return _ratio(self.accepted, self.drafted - self.discarded)

    @property
    def token_acceptance_probability(self) -> float | None:
        return _ratio(self.accepted, self.accepted + self.rounds_rejected)

    @property
    def mean_acceptance_length(self) -> float | None:
        share = _ratio(self.accepted, self.rounds_with_draft)
        return None if share is None else 1 + share

    @property
    def acceptance_at(self) -> list[float | None]:
        return [_ratio(a, n) for a, n in zip(self.accepted_at, self.tested_at, strict=True)]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
