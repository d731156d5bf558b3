"""A distribution over the tokens that survived the samplers: what draws and verdicts are made from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]

_CERTAIN = np.ones(1)
_CERTAIN.flags.writeable = False


class Distribution:
    """Weights over the surviving tokens, in any order; a probability is a weight over their sum.

    `ids` and `weights` have shape (survivors,). What a draw needs is summed at the first draw and kept.
    """

    __slots__ = ("_cumulated", "_drawn", "_ids", "only", "weights")

    def __init__(self, ids: Ids, weights: Floats) -> None:
        self._ids: Ids | None = ids
        self.weights = weights
        self.only: int | None = int(ids[0]) if len(ids) == 1 else None  # the one survivor, if it is one
        self._cumulated: Floats | None = None
        self._drawn = (-1, 0.0)  # the last draw and its probability, which the verdict asks for

    @classmethod
    def certain(cls, token: int) -> Distribution:
        """All on one token: greedy decoding, or a lookup."""
        made = cls.__new__(cls)
        made._ids, made.weights, made.only = None, _CERTAIN, token  # noqa: SLF001 (its own)
        return made

    @property
    def ids(self) -> Ids:
        return np.array([self.only]) if self._ids is None else self._ids

    @property
    def probs(self) -> Floats:
        """Shape (survivors,), sums to 1."""
        probs: Floats = self.weights / self.weights.sum()
        return probs

    def probability(self, token: int) -> float:
        """0.0 for a token that did not survive."""
        if self.only is not None:
            return 1.0 if self.only == token else 0.0
        if token == self._drawn[0]:
            return self._drawn[1]
        at = (self.ids == token).nonzero()[0]
        return float(self.weights[at[0]] / self._sums()[-1]) if len(at) else 0.0

    @property
    def confidence(self) -> float:
        """The highest probability."""
        if self.only is not None:
            return 1.0
        return float(self.weights.max() / self._sums()[-1])

    def draw(self, rng: np.random.Generator) -> int:
        if self.only is not None:
            return self.only
        sums = self._sums()
        total = sums[-1]
        at = sums.searchsorted(rng.random() * total, side="right")
        token = int(self.ids[at])
        self._drawn = (token, float(self.weights[at] / total))
        return token

    def _sums(self) -> Floats:
        if self._cumulated is None:
            self._cumulated = self.weights.cumsum()
        return self._cumulated
