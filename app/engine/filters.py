"""The samplers that look at nothing but the logits: which tokens survive, and how a temperature bends the rest.

Definitions are llama.cpp's (src/llama-sampler.cpp). Each takes candidates and returns candidates; none changes what it
was given.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from app.engine.distribution import Distribution, Floats, Ids, Logits

_COLUMN = 32  # logits that one maximum stands for in the search for the top k
_HEAD = 256  # candidates tried before all are sorted


class Candidates(NamedTuple):
    """Tokens and their logits, both of shape (n,), in any order. `ids` None: the whole vocabulary, by id.

    `ruled_out` more have no chance, but count where candidates are counted: top-n-sigma leaves them there in llama.cpp.
    """

    ids: Ids | None
    logits: Logits
    ruled_out: int = 0

    def at(self, places: Ids) -> Candidates:
        return Candidates(places if self.ids is None else self.ids[places], self.logits[places])

    def best(self, k: int) -> Candidates:
        """The k with the largest logits, best first."""
        if k < len(self.logits):
            places, _ = best_first(self.logits, k)
        else:
            places = self.logits.argsort(kind="stable")[::-1]
        return self.at(places)

    def distribution(self) -> Distribution:
        weights = weights_of(self.logits, self.logits.max())
        possible = weights.nonzero()[0]  # what underflows cannot be drawn either
        ids = possible if self.ids is None else self.ids[possible]
        return Distribution(ids, weights[possible])


def top_k(candidates: Candidates, k: int) -> Candidates:
    best = candidates.best(k)
    return best._replace(ruled_out=min(candidates.ruled_out, k - len(best.logits)))


def top_p(candidates: Candidates, share: float) -> Candidates:
    """The fewest of the best that together hold `share` of the probability (Holtzman et al. 2020, arXiv 1904.09751)."""
    if len(candidates.logits) > _HEAD:
        places, weights, total = head_that_holds(candidates.logits, share)
        best = candidates.at(places)
    else:
        best = candidates.best(len(candidates.logits))
        weights = weights_of(best.logits, best.logits[0])
        total = weights.sum()
    keep = int(weights.cumsum().searchsorted(share * total)) + 1
    return best.at(np.arange(min(keep, len(weights))))


def min_p(candidates: Candidates, share: float) -> Candidates:
    """Those at least `share` times as probable as the best (Nguyen et al. 2024, arXiv 2407.01082)."""
    return candidates.at((weights_of(candidates.logits, candidates.logits.max()) >= share).nonzero()[0])


def typical(candidates: Candidates, share: float) -> Candidates:
    """Those whose surprise is nearest to the expected one, until they hold more than `share` of the probability.

    Meister et al. 2022, arXiv 2202.00666.
    """
    best = candidates.best(len(candidates.logits))
    probs, surprises = _probs_and_surprises(best.logits)
    entropy = _entropy(probs, surprises)
    order = np.abs(surprises - entropy).argsort(kind="stable")
    keep = int(probs[order].cumsum().searchsorted(share, side="right")) + 1
    return best.at(order[:keep])


def top_n_sigma(candidates: Candidates, n: float) -> Candidates:
    """Those within `n` standard deviations of the best logit (Tang et al. 2024, arXiv 2411.07641)."""
    logits = candidates.logits
    possible = logits if logits.min() > -np.inf else logits[logits > -np.inf]
    kept = (logits >= possible.max() - np.float32(n) * possible.std()).nonzero()[0]
    return candidates.at(kept)._replace(ruled_out=len(logits) - len(kept))


def temperature(candidates: Candidates, degree: float, reach: float = 0.0, exponent: float = 1.0) -> Candidates:
    """Divide the logits. With a `reach`, by the entropy's place between degree - reach and degree + reach.

    At 0 the best is alone.
    """
    if reach > 0:
        n = len(candidates.logits) + candidates.ruled_out
        if n < 2:
            return candidates
        probs, surprises = _probs_and_surprises(candidates.logits)
        openness = _entropy(probs, surprises) / math.log(n)
        low, high = max(0.0, degree - reach), degree + reach
        degree = low + (high - low) * openness**exponent
    if degree <= 0:
        return candidates.best(1)
    # Not below what single precision can divide by; the best is alone long before that.
    return candidates._replace(logits=candidates.logits / np.float32(max(degree, 1e-30)))


def without_top_choices(candidates: Candidates, threshold: float) -> Candidates:
    """XTC where its coin has fallen: of those at least as probable as `threshold`, only the least probable stays.

    From text-generation-webui, pull request 6335.
    """
    best = candidates.best(len(candidates.logits))
    probs, _ = _probs_and_surprises(best.logits)
    dropped = max(int(np.count_nonzero(probs >= threshold)) - 1, 0)
    return best.at(np.arange(dropped, len(probs)))._replace(ruled_out=candidates.ruled_out)


def _probs_and_surprises(logits: Logits) -> tuple[Floats, Floats]:
    """Probabilities, and -log of each; both of the shape of `logits`."""
    relative = (logits - logits.max()).astype(np.float64)
    weights = np.exp(relative)
    total = weights.sum()
    return weights / total, math.log(total) - relative


def _entropy(probs: Floats, surprises: Floats) -> float:
    possible = probs > 0
    return float((probs[possible] * surprises[possible]).sum())


# -- top-k, top-p and min-p in one, as nearly every answer wants them ---------------------------------------------


def classic_survivors(logits: Logits, k: int, share: float, least: float) -> tuple[Ids, Floats]:
    """What top-k, top-p (`share`) and min-p (`least`), in this order, leave: ids, and exp(logit - best logit) of each.

    Each filter keeps the head of the vocabulary sorted by logit, so one order and the shortest head serve all three.
    """
    if 0 < k < len(logits):
        ids, values = best_first(logits, k)
        weights = weights_of(values, values[0])
        total = None
    elif share < 1.0:
        ids, weights, total = head_that_holds(logits, share)
    else:  # no filter needs an order
        weights = weights_of(logits, logits.max())
        ids = (weights >= least).nonzero()[0]
        return ids, weights[ids]
    if share < 1.0:
        sums = weights.cumsum()
        keep = int(sums.searchsorted(share * (sums[-1] if total is None else total))) + 1
        ids, weights = ids[:keep], weights[:keep]
    if least > 0:
        keep = int(np.count_nonzero(weights >= least))
        ids, weights = ids[:keep], weights[:keep]
    return ids, weights


def head_that_holds(logits: Logits, share: float) -> tuple[Ids, Floats, np.float64]:
    """Enough of the largest to hold `share` of the mass, best first, and the whole mass.

    It nearly always sits on a few hundred tokens, so these are tried before the vocabulary is sorted.
    """
    # In single precision: it only decides where the nucleus ends, and alike with and without a draft.
    total = np.exp(logits - logits.max()).sum(dtype=np.float64)
    head = _HEAD
    while True:
        ids, values = best_first(logits, head)
        weights = weights_of(values, values[0])
        if head >= len(logits) or weights.sum() >= share * total * (1 + 1e-6):
            return ids, weights, total
        head *= 8


def weights_of(logits: Logits, best: np.float32) -> Floats:
    weights: Floats = np.exp(logits - best, dtype=np.float64)
    return weights


def best_first(logits: Logits, k: int) -> tuple[Ids, Logits]:
    """Ids and values of the k largest logits, largest first; the higher id comes first among equals.

    The k-th largest of some columns' maxima is a lower bound for the k-th largest logit, because at least k logits
    reach it. Few more do, and only those are sorted.
    """
    n_columns = len(logits) // _COLUMN
    if k < n_columns:
        heads = logits[: n_columns * _COLUMN].reshape(_COLUMN, n_columns).max(axis=0)
    else:
        heads = logits.copy()  # too many for columns to help: the bound is exact
    if k < len(heads):
        heads.partition(len(heads) - k)
        candidates = (logits >= heads[len(heads) - k]).nonzero()[0]
    else:
        candidates = np.arange(len(logits))
    values = logits[candidates]
    order = values.argsort(kind="stable")[: -k - 1 : -1]
    return candidates[order], values[order]
