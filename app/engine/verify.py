"""The decision of a round: which draft tokens stand, and which token the target adds behind them. Pure numpy.

Every emitted token is distributed as the target's own sampling, whatever the draft was. Two rules see to that:

*Rejection* (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318): a draft token drawn from
`draft_probs` is accepted with probability min(1, target / draft). At the first rejection the target draws from the
normalised positive part of target - draft, after a fully accepted draft from its own distribution.

*Comparison*: the target draws its own token at every position, and a draft token stands while it is the same one.
*Coupled* (Daliri et al. 2024, arXiv 2408.07978) is comparison with draws that the drafter repeats: both take the
argmax of log-probability plus the same Gumbel noise, hashed from seed, position and token id. The answer then depends
on the seed alone, with any drafter, any draft length, or none.

Greedy decoding is the limit of one-token distributions in all of them: a draft token stands if it is the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from app.engine.noise import gumbel_noise
from app.engine.rounds import DrafterKind, TokenSource
from app.engine.sampling import Distribution

TargetProbs = Callable[[int], Distribution]


@dataclass
class Draft:
    """Draft tokens and, for each, the distribution it was really drawn from. Both have length γ; γ may be 0.

    Exactness rests on that truth, and on one more: whether a position is drafted may depend on the tokens before it
    and on its distribution, never on the token drawn there.
    """

    drafter: DrafterKind = DrafterKind.none
    tokens: list[int] = field(default_factory=list)
    probs: list[Distribution] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)  # how sure the drafter was, 0 to 1, known before the draw
    steps: list[tuple[int, float]] = field(default_factory=list)  # tokens and seconds of each decode of the draft model

    def __len__(self) -> int:
        return len(self.tokens)

    def first(self, n: int) -> Draft:
        """The draft that ends after `n` tokens."""
        return Draft(self.drafter, self.tokens[:n], self.probs[:n], self.confidences[:n], self.steps)

    @property
    def seconds(self) -> float:
        """Spent in the draft model's decodes."""
        return sum(seconds for _, seconds in self.steps)


class Verdict(NamedTuple):
    """The first `accepted` draft tokens stand; the target adds `token`, which is recovered, bonus or plain."""

    accepted: int
    token: int
    source: TokenSource


class Rule(Protocol):
    """How tokens are drawn and drafts verified in one answer."""

    def draw(self, probs: Distribution, position: int) -> int:
        """The token at `position` of the whole text, for a drafter's proposal."""

    def verify(self, draft: Draft, target_probs_at: TargetProbs, position: int) -> Verdict:
        """The outcome of a draft that begins at `position` of the whole text.

        `target_probs_at(i)` gives the target's distribution behind the first i draft tokens, 0 <= i <= γ. It is
        asked only for positions that are reached, once each and from left to right.
        """


class Rejection:
    """The rejection rule, with one random stream for draft and target."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def draw(self, probs: Distribution, position: int) -> int:
        return probs.draw(self._rng)

    def verify(self, draft: Draft, target_probs_at: TargetProbs, position: int) -> Verdict:
        rng = self._rng
        for i, (token, draft_probs) in enumerate(zip(draft.tokens, draft.probs, strict=True)):
            target_probs = target_probs_at(i)
            wanted, proposed = target_probs.probability(token), draft_probs.probability(token)
            # The ratio multiplied out, so that nothing is divided by 0; above 1 nothing needs to be drawn.
            if wanted < proposed and rng.random() * proposed >= wanted:
                return Verdict(i, residual(target_probs, draft_probs).draw(rng), TokenSource.recovered)
        return Verdict(len(draft), target_probs_at(len(draft)).draw(rng), _last_source(draft))


class Comparison:
    """The target draws at every position; a draft token stands while it is the one drawn."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def draw(self, probs: Distribution, position: int) -> int:
        return probs.draw(self._rng)

    def verify(self, draft: Draft, target_probs_at: TargetProbs, position: int) -> Verdict:
        for i, token in enumerate(draft.tokens):
            drawn = self.draw(target_probs_at(i), position + i)
            if drawn != token:
                return Verdict(i, drawn, TokenSource.recovered)
        return Verdict(len(draft), self.draw(target_probs_at(len(draft)), position + len(draft)), _last_source(draft))


class Coupled(Comparison):
    """Comparison with draws that depend on nothing but seed, position and distribution."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def draw(self, probs: Distribution, position: int) -> int:
        if probs.only is not None:
            return probs.only
        ids = probs.ids
        with np.errstate(divide="ignore"):  # a weight may underflow to 0: it cannot win
            scores = np.log(probs.weights) + gumbel_noise(self._seed, position, ids)
        # Among equals the lowest id wins, in whatever order the survivors stand.
        best = scores.max()
        return int(ids[scores == best].min())


def _last_source(draft: Draft) -> TokenSource:
    return TokenSource.bonus if len(draft) else TokenSource.plain


def residual(target_probs: Distribution, draft_probs: Distribution) -> Distribution:
    """The normalised positive part of target - draft, over the target's survivors.

    A target with one survivor keeps it: that is greedy decoding. Where rounding leaves nothing (equal distributions
    reject with probability 0), the target's own serves.
    """
    if target_probs.only is not None:
        return target_probs
    order = draft_probs.ids.argsort(kind="stable")
    sorted_ids = draft_probs.ids[order]
    at = np.minimum(sorted_ids.searchsorted(target_probs.ids), len(order) - 1)
    shared = sorted_ids[at] == target_probs.ids
    difference = np.maximum(target_probs.probs - np.where(shared, draft_probs.probs[order[at]], 0.0), 0.0)
    return Distribution(target_probs.ids, difference) if difference.any() else target_probs
