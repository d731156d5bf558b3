"""The decision of a round: which draft tokens stand, and which token the target adds behind them. Pure numpy.

Rejection rule (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318): a draft token drawn
from `draft_probs` is accepted with probability min(1, target / draft). At the first rejection the target draws from
the normalised positive part of target - draft, after a fully accepted draft from its own distribution. Every emitted
token is then distributed as the target's own sampling, whatever the draft was. Greedy decoding is the limit of
one-token distributions: a draft token stands exactly if it is the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from app.engine.rounds import DrafterKind, TokenSource
from app.engine.sampling import Distribution


@dataclass
class Draft:
    """Draft tokens and, for each, the distribution it was really drawn from. Both have length γ; γ may be 0.

    Exactness rests on that truth, and on one more: whether a position is drafted may depend on the tokens before it
    and on its distribution, never on the token drawn there.
    """

    drafter: DrafterKind = DrafterKind.none
    tokens: list[int] = field(default_factory=list)
    probs: list[Distribution] = field(default_factory=list)
    seconds: float = 0.0  # spent in the draft model's decodes

    def __len__(self) -> int:
        return len(self.tokens)


class Verdict(NamedTuple):
    """The first `accepted` draft tokens stand; the target adds `token`, which is recovered, bonus or plain."""

    accepted: int
    token: int
    source: TokenSource


def verify(draft: Draft, target_probs_at: Callable[[int], Distribution], rng: np.random.Generator) -> Verdict:
    """Accept or reject `draft` by the rejection rule.

    `target_probs_at(i)` gives the target's distribution behind the first i draft tokens, 0 <= i <= γ. It is asked
    only for positions that are reached, from left to right.
    """
    for i, (token, draft_probs) in enumerate(zip(draft.tokens, draft.probs, strict=True)):
        target_probs = target_probs_at(i)
        wanted, proposed = target_probs.probability(token), draft_probs.probability(token)
        # The ratio multiplied out, so that nothing is divided by 0; above 1 nothing needs to be drawn.
        if wanted < proposed and rng.random() * proposed >= wanted:
            return Verdict(i, residual(target_probs, draft_probs).draw(rng), TokenSource.recovered)
    source = TokenSource.bonus if len(draft) else TokenSource.plain
    return Verdict(len(draft), target_probs_at(len(draft)).draw(rng), source)


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
