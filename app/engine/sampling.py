"""From logits and SamplingParams to the target's distribution over the tokens that survive its filters.

The filters run in llama.cpp's order: repeat penalty, top-k, top-p, min-p, temperature; top-p and min-p see the
distribution before the temperature. A temperature of 0 is the limit: one token survives.
Drafts are drawn from the same function over the draft's logits, so that the two are as near as they can be.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from app.engine.protocol import MAX_DRAFT_LENGTH, GenerationRequest, SamplingParams
from app.errors import UsageError

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

_CERTAIN = np.ones(1)
_CERTAIN.flags.writeable = False
_COLUMN = 32  # logits that one maximum stands for in the search for the top k


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


def fresh_seed() -> int:
    return secrets.randbits(32)


def validate(request: GenerationRequest) -> None:
    """Raises UsageError that names the setting and its range."""
    params = request.sampling
    for name, value, low, high in (
        ("temperature", params.temperature, 0, 100),
        ("top-p", params.top_p, 0, 1),
        ("min-p", params.min_p, 0, 1),
        ("top-k", params.top_k, 0, 2**31),
        ("repeat penalty", params.repeat_penalty, 0.01, 100),
        ("seed", params.seed, 0, 2**63),
        ("number of tokens", request.max_tokens, 1, 2**31),
        ("draft length", request.speculation.draft_length, 0, MAX_DRAFT_LENGTH),
    ):
        if value is not None and not low <= value <= high:
            raise UsageError(f"The {name} is {value}; it must lie between {low} and {high}.")


def recent_tokens(params: SamplingParams, tokens: Sequence[int], drafted: Sequence[int]) -> Sequence[int]:
    """What the repeat penalty looks back on behind `tokens` and `drafted`; nothing where it is off."""
    if params.repeat_penalty == 1.0 or params.repeat_last_n <= 0:
        return ()
    return [*tokens[-params.repeat_last_n :], *drafted][-params.repeat_last_n :]


class Sampler:
    """SamplingParams made ready for one answer: from logits behind a text to what the next token is drawn from."""

    def __init__(self, params: SamplingParams, suppressed: Ids | None = None) -> None:
        self._params = params
        self._suppressed = suppressed

    def distribution(
        self, logits: npt.NDArray[np.float32], tokens: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution:
        """`logits` has shape (n_vocab,) and stands behind the text `tokens` and the draft tokens `drafted`."""
        return distribution(logits, self._params, recent_tokens(self._params, tokens, drafted), self._suppressed)

    def for_draft(self) -> Sampler:
        """What a draft model draws from: as near to the target's sampling as a draft can be."""
        return self


def distribution(
    logits: npt.NDArray[np.float32],
    params: SamplingParams,
    recent: Sequence[int] = (),
    suppressed: Ids | None = None,
) -> Distribution:
    """What the target draws its next token from.

    `logits` has shape (n_vocab,) and is not changed. `recent` are the tokens that the repeat penalty looks back on
    (see `recent_tokens`). `suppressed` are ids that never survive.
    """
    penalised = params.repeat_penalty != 1.0 and len(recent) > 0
    if penalised or (suppressed is not None and len(suppressed)):
        logits = logits.copy()
    if penalised:
        seen = np.unique(np.asarray(recent, dtype=np.int64))
        seen = seen[seen < len(logits)]
        values = logits[seen]
        logits[seen] = np.where(values > 0, values / params.repeat_penalty, values * params.repeat_penalty)
    if suppressed is not None and len(suppressed):
        logits[suppressed[suppressed < len(logits)]] = -np.inf

    if params.temperature <= 0 or params.top_k == 1:
        return Distribution.certain(int(logits.argmax()))
    ids, weights = _survivors(logits, params)
    # Weights are relative to the best before the temperature: exp(x / T) = exp(x) ** (1 / T).
    return Distribution(ids, weights if params.temperature == 1.0 else weights ** (1.0 / params.temperature))


def _survivors(logits: npt.NDArray[np.float32], params: SamplingParams) -> tuple[Ids, Floats]:
    """What top-k, top-p and min-p leave: ids, and exp(logit - best logit) of each.

    Each filter keeps the head of the vocabulary sorted by logit, so one order and the shortest head serve all three.
    """
    if 0 < params.top_k < len(logits):
        ids, values = best_first(logits, params.top_k)
        weights = _weights(values, values[0])
        total = None
    elif params.top_p < 1.0:
        ids, weights, total = _head_that_holds(logits, params.top_p)
    else:  # no filter needs an order
        weights = _weights(logits, logits.max())
        ids = (weights >= params.min_p).nonzero()[0]
        return ids, weights[ids]
    if params.top_p < 1.0:
        sums = weights.cumsum()
        keep = int(sums.searchsorted(params.top_p * (sums[-1] if total is None else total))) + 1
        ids, weights = ids[:keep], weights[:keep]
    if params.min_p > 0:
        keep = int(np.count_nonzero(weights >= params.min_p))
        ids, weights = ids[:keep], weights[:keep]
    return ids, weights


def _head_that_holds(logits: npt.NDArray[np.float32], share: float) -> tuple[Ids, Floats, np.float64]:
    """Enough of the largest to hold `share` of the mass, best first, and the whole mass.

    It nearly always sits on a few hundred tokens, so these are tried before the vocabulary is sorted.
    """
    # In single precision: it only decides where the nucleus ends, and alike with and without a draft.
    total = np.exp(logits - logits.max()).sum(dtype=np.float64)
    head = 256
    while True:
        ids, values = best_first(logits, head)
        weights = _weights(values, values[0])
        if head >= len(logits) or weights.sum() >= share * total * (1 + 1e-6):
            return ids, weights, total
        head *= 8


def _weights(logits: npt.NDArray[np.float32], best: np.float32) -> Floats:
    weights: Floats = np.exp(logits - best, dtype=np.float64)
    return weights


def best_first(logits: npt.NDArray[np.float32], k: int) -> tuple[Ids, npt.NDArray[np.float32]]:
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
