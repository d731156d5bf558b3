"""Mirostat 1 and 2 (Basu et al. 2021, arXiv 2007.14966): a limit on surprise that follows what was emitted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from app.engine.distribution import Distribution
from app.engine.filters import Candidates
from app.engine.protocol import SamplingParams

_LN2 = math.log(2.0)
_FITTED = 100  # of the best tokens, to which version 1 fits Zipf's law


class Mirostat:
    """The limit of one answer, in bits; the paper's mu. It is a function of the emitted tokens, whatever the rounds."""

    def __init__(self, params: SamplingParams) -> None:
        self.limit = 2 * params.mirostat_tau  # behind the committed text
        self._truncated = up_to_rank if params.mirostat == 1 else up_to_surprise
        self._tau = params.mirostat_tau
        self._eta = params.mirostat_eta
        self._asked: list[tuple[float, Distribution]] = []  # limit and distribution of each position of this round

    def distribution(self, candidates: Candidates, drafted: Sequence[int]) -> Distribution:
        """What is drawn from behind the committed text and the draft tokens `drafted`, which were accepted so far."""
        del self._asked[len(drafted) :]
        limit = self._behind(*self._asked[-1], drafted[-1]) if drafted else self.limit
        found = self._truncated(candidates, limit).distribution()
        self._asked.append((limit, found))
        return found

    def glance(self, candidates: Candidates) -> Distribution:
        """What a draft is drawn from: truncated at the limit as it stands, and forgotten."""
        return self._truncated(candidates, self.limit).distribution()

    def commit(self, tokens: Sequence[int]) -> None:
        """These were emitted, drawn from what was asked since the last commit."""
        for (limit, distribution), token in zip(self._asked, tokens, strict=False):
            self.limit = self._behind(limit, distribution, token)
        self._asked = []

    def _behind(self, limit: float, distribution: Distribution, token: int) -> float:
        surprise = -math.log2(distribution.probability(token))
        return limit - self._eta * (surprise - self._tau)


def up_to_surprise(candidates: Candidates, most: float) -> Candidates:
    """Version 2: those that surprise by at most `most` bits, and the best in any case."""
    logits = candidates.logits
    best = logits.max()
    # In single precision, because the whole vocabulary is summed; alike with and without a draft.
    log_total = math.log(float(np.exp(logits - best).sum(dtype=np.float64)))
    bound = float(best) + min(log_total - most * _LN2, 0.0)
    return candidates.at((logits >= bound).nonzero()[0])


def up_to_rank(candidates: Candidates, surprise: float) -> Candidates:
    """Version 1: as many of the best as surprise by `surprise` bits on average, if the best follow Zipf's law."""
    n = len(candidates.logits)
    best = candidates.best(min(_FITTED, n)).logits
    best = best[best > -np.inf]
    ranks = np.arange(1, len(best))
    ratios = np.log((ranks + 1) / ranks)
    slope = float((ratios * (best[:-1] - best[1:])).sum() / (ratios**2).sum()) if len(best) > 1 else 0.0
    return candidates.best(_rank(slope, surprise, n))


def _rank(slope: float, surprise: float, n: int) -> int:
    """Equation 2 of the paper, between 1 and n. In logarithms, because it overflows soon."""
    if slope <= 0:
        return n  # all are alike
    excess, size = slope - 1, math.log(n)
    # excess / (1 - n ** -excess) is positive on both sides of 0, and 1 / log n there.
    front = 1 / size if abs(excess * size) < 1e-9 else excess / -math.expm1(-excess * size)
    exponent = (math.log(front) + surprise * _LN2) / slope
    return n if exponent >= size else max(int(math.exp(exponent)), 1)
