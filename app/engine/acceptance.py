"""How likely a draft token is accepted, learned from the rounds of one drafter.

Two things are known before a token is drawn: the position in the draft, and how sure the drafter is (DESIGN, section
3). `rates` maps that confidence to a probability. `ahead` tells what confidences are to be expected where none was
computed yet, by how sure the target was of its own last tokens: it needs no draft to notice that prose has turned to
code. Only tested tokens count: what stood behind a rejection or behind the end of the answer, and the token
that a draft was too short to hold, say nothing (a fully accepted draft is censored by its length).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from app.engine.sampling import Distribution, Floats

# Most drafts are either very sure or not at all, so the bins are narrow near 1.
EDGES = np.array([0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.85, 0.92, 0.96, 0.985, 0.996])
BINS = len(EDGES) + 1
_CENTRES = (np.concatenate(([0.0], EDGES)) + np.concatenate((EDGES, [1.0]))) / 2

_PRIOR = 3.0  # tested tokens that the first guess of a bin weighs
_MEMORY = 0.99  # of a bin for each new token in it: the relation changes slowly
_LONG_MEMORY = 0.997  # of what confidences are usual, for each one seen
_SHORT_MEMORY = 0.94  # of those of the present text: prose turns to code within a few dozen tokens
_HINTS = np.array([0.4, 0.6, 0.75, 0.88])  # levels of the target's own confidence
HINTS = len(_HINTS) + 1
_USUAL = 8.0  # confidences that the usual ones weigh beside those of the present text
_RECENT_MEMORY = 0.88  # for each token tested: a draft that was right only at the start is noticed in a few rounds
_RECENT_PRIOR = 3.0
_RECENT_SLACK = 0.15  # that chance explains


class Acceptance:
    """Learned from `observe`; two of these never share evidence (one per drafter and setting)."""

    def __init__(self) -> None:
        self.tested = np.zeros(BINS)  # decayed counts
        self.accepted = np.zeros(BINS)
        # Decayed counts by level of the target's confidence; then [0]: first position of a draft, [1]: later ones.
        self.usual = np.full((HINTS, 2, BINS), _PRIOR / BINS / HINTS)
        self.level = HINTS // 2  # of the target's recent confidence: `ahead` depends on it
        self._target_confidence = 0.7
        self._present = np.zeros((2, BINS))
        self._expected = self._met = 0.0  # recent tokens: predicted and real acceptance

    def rates(self) -> Floats:
        """Probability of acceptance by bin of confidence, shape (BINS,)."""
        learned = (self.accepted + _PRIOR * _CENTRES) / (self.tested + _PRIOR)
        recent = (self._met + _RECENT_PRIOR) / (self._expected + _RECENT_PRIOR)
        rates: Floats = np.clip(learned * min(recent + _RECENT_SLACK, 1.0), 0.001, 0.999)
        return rates

    def ahead(self) -> Floats:
        """Shares of the bins of confidence to expect, shape (2, BINS): at the first position, and behind it."""
        overall = self.usual.sum(axis=0)
        here = self.usual[self.level] + _PRIOR * overall / overall.sum(axis=1, keepdims=True)
        counts = self._present + _USUAL * here / here.sum(axis=1, keepdims=True)
        shares: Floats = counts / counts.sum(axis=1, keepdims=True)
        return shares

    def begin(self) -> None:
        """Another text starts: only what is usual is known of it."""
        self._present[:] = 0.0
        self._expected = self._met = 0.0

    def hear(self, target_confidence: float) -> None:
        """How sure the target was of the newest token."""
        self._target_confidence += 0.25 * (target_confidence - self._target_confidence)
        self.level = int(_HINTS.searchsorted(self._target_confidence))

    def rest(self) -> None:
        """A token without a draft: what the text was like a while ago counts less and less."""
        self._present *= _SHORT_MEMORY
        self._expected *= _SHORT_MEMORY
        self._met *= _SHORT_MEMORY

    def look(self, confidences: Sequence[float]) -> None:
        """A drafter was so sure at these positions, whatever came of it."""
        for position, at in enumerate(bins_of(confidences)):
            row = min(position, 1)
            self.usual[self.level, row] *= _LONG_MEMORY
            self.usual[self.level, row, at] += 1.0
            self._present[row] *= _SHORT_MEMORY
            self._present[row, at] += 1.0

    def observe(self, confidences: Sequence[float], accepted: int, tested: int) -> None:
        """The first `tested` of these tokens were decided, the first `accepted` of them for the draft."""
        rates = self.rates()
        for position, at in enumerate(bins_of(confidences[:tested])):
            right = position < accepted
            self.tested[at] = self.tested[at] * _MEMORY + 1.0
            self.accepted[at] = self.accepted[at] * _MEMORY + right
            self._expected = self._expected * _RECENT_MEMORY + rates[at]
            self._met = self._met * _RECENT_MEMORY + right


def confidence_of(probs: Distribution, logits: npt.NDArray[np.float32]) -> float:
    """How sure a model is of its next token, 0 to 1: its highest probability, before anything is drawn.

    Where the settings leave one token, (best - second) / (best + second) of the probabilities before them.
    `logits` is changed for a moment only.
    """
    if probs.only is None:
        return probs.confidence
    best = logits[probs.only]
    logits[probs.only] = -np.inf
    gap = float(best - logits.max())
    logits[probs.only] = best
    return float(np.tanh(max(gap, 0.0) / 2))


def bins_of(confidences: Sequence[float]) -> list[int]:
    return [int(at) for at in EDGES.searchsorted(confidences, side="right")]
