"""How fast the best fixed draft length could be, from measured costs and acceptance: the yardstick of `bench`.

A round with γ draft tokens costs γ draft tokens and one target pass over γ + 1 tokens; it brings one token more than
were accepted (Leviathan et al. 2023, arXiv 2211.17192, section 3). The window never shows these figures as a speed-up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from app.engine.protocol import MAX_DRAFT_LENGTH
from app.engine.rounds import DrafterKind, Round

LEAST_ROUNDS = 3  # of one draft length, before the median of their times counts as measured
LEAST_TESTED = 8  # tokens at a position, before their acceptance is taken for that position's


@dataclass(frozen=True)
class MeasuredCosts:
    """Milliseconds. `target_ms[n]`: the target's side of a round whose pass evaluates n tokens, only as measured."""

    target_ms: Mapping[int, float]
    draft_ms: float | None = None  # a token of the draft model

    @classmethod
    def of(cls, rounds: Iterable[Round]) -> MeasuredCosts:
        """Medians over rounds. The first round of an answer is left out: it follows the reading of the prompt."""
        target: defaultdict[int, list[float]] = defaultdict(list)
        draft = []
        for r in rounds:
            if r.number == 0:
                continue
            target[r.drafted + 1].append(1000 * (r.times.total - r.times.draft))
            if r.drafted and r.drafter is DrafterKind.model:
                draft.append(1000 * r.times.draft / r.drafted)
        measured = {n: median(times) for n, times in sorted(target.items()) if len(times) >= LEAST_ROUNDS}
        return cls(measured, median(draft) if len(draft) >= LEAST_ROUNDS else None)

    @property
    def longest_draft(self) -> int:
        """The longest draft whose pass was measured; beyond it nothing is claimed. 0 where nothing was measured."""
        return min(max(self.target_ms, default=1) - 1, MAX_DRAFT_LENGTH)

    def target(self, n: int) -> float:
        """The cost of a pass over `n` tokens, on a straight line between those measured.

        Raises ValueError outside of what was measured: batches grow dearer in steps, not on a line that goes on.
        """
        if n in self.target_ms:
            return self.target_ms[n]
        below = max((size for size in self.target_ms if size < n), default=None)
        above = min((size for size in self.target_ms if size > n), default=None)
        if below is None or above is None:
            raise ValueError(f"a pass over {n} tokens was not measured, nor were fewer and more")
        share = (n - below) / (above - below)
        return self.target_ms[below] + share * (self.target_ms[above] - self.target_ms[below])


@dataclass(frozen=True)
class MeasuredAcceptance:
    """What became of draft tokens, by their position in the draft.

    A position counts where the target decided it: its round reached it and did not end before. A draft too short to
    hold a position, and tokens behind the end of the answer, are censored, so that chances multiply to a survival
    curve (Kaplan and Meier 1958). This is unbiased for drafts of a fixed length. A pacing that ends drafts where the
    drafter is unsure leaves the easier tokens, and the curve is too high.
    """

    tested: tuple[int, ...] = ()  # [i]: rounds in which position i was decided
    accepted: tuple[int, ...] = ()  # [i]: those in which it was accepted
    drafting_share: float = 1.0  # of the rounds that had a draft at all: a lookup finds none in most prose

    @classmethod
    def of(cls, rounds: Iterable[Round]) -> MeasuredAcceptance:
        """First rounds never have a draft and do not count for `drafting_share`."""
        tested, accepted = [0] * MAX_DRAFT_LENGTH, [0] * MAX_DRAFT_LENGTH
        later = drafting = 0
        for r in rounds:
            later += r.number > 0
            drafting += r.drafted > 0
            for i in range(r.accepted + (r.rejected > 0)):
                tested[i] += 1
                accepted[i] += i < r.accepted
        known = next((i for i in range(MAX_DRAFT_LENGTH) if not tested[i]), MAX_DRAFT_LENGTH)
        return cls(tuple(tested[:known]), tuple(accepted[:known]), drafting / later if later else 0.0)

    @property
    def measured_positions(self) -> int:
        """How many positions were tested often enough to have a chance of their own."""
        return sum(count >= LEAST_TESTED for count in self.tested)

    def chance(self, position: int) -> float:
        """That a draft token is accepted if those before it were.

        A position tested too seldom gets the chance of all tokens together: the tail of the curve is geometric.
        """
        if position < len(self.tested) and self.tested[position] >= LEAST_TESTED:
            return self.accepted[position] / self.tested[position]
        total = sum(self.tested)
        return sum(self.accepted) / total if total else 0.0

    def expected(self, length: int) -> float:
        """Draft tokens accepted on average in a round with `length` of them."""
        return sum(math.prod(map(self.chance, range(upto))) for upto in range(1, length + 1))


@dataclass(frozen=True)
class Ideal:
    """The best of the fixed draft lengths. `by_length[γ]` is the speed-up each length could reach."""

    draft_length: int
    speedup: float
    by_length: tuple[float, ...]


def expected_speedup(length: int, costs: MeasuredCosts, acceptance: MeasuredAcceptance, share: float = 1.0) -> float:
    """How many times as fast as plain decoding rounds of one draft length are; `share` of the rounds have a draft.

    Raises ValueError where the costs of that length, or of a plain round, were not measured.
    """
    plain_ms = costs.target(1)
    draft_ms = costs.target(length + 1) + length * (costs.draft_ms or 0.0) if length else plain_ms
    tokens = 1 + share * acceptance.expected(length)
    return tokens * plain_ms / (share * draft_ms + (1 - share) * plain_ms)


def ideal(costs: MeasuredCosts, acceptances: Sequence[MeasuredAcceptance], *, is_lookup: bool = False) -> Ideal | None:
    """The best fixed length by the median over `acceptances`, one for each text; None if too little was measured.

    A draft model can always draft and costs `costs.draft_ms` a token; a lookup costs nothing and finds no more than
    it found when it was measured.
    """
    if is_lookup:
        costs = MeasuredCosts(costs.target_ms)
    else:
        acceptances = [a for a in acceptances if a.tested]  # a draft model that was never asked says nothing
    if not acceptances or 1 not in costs.target_ms:
        return None
    by_length = [
        median(expected_speedup(n, costs, a, a.drafting_share if is_lookup else 1.0) for a in acceptances)
        for n in range(costs.longest_draft + 1)
    ]
    best = max(range(len(by_length)), key=by_length.__getitem__)
    return Ideal(best, by_length[best], tuple(by_length))
