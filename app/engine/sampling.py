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
    """Probabilities over the surviving tokens. `ids` ascend; `probs` sum to 1. Both have shape (survivors,)."""

    __slots__ = ("_ids", "only", "probs")

    def __init__(self, ids: Ids | None, probs: Floats, only: int | None = None) -> None:
        self._ids = ids
        self.probs = probs
        self.only = int(ids[0]) if ids is not None and len(ids) == 1 else only  # the one survivor, if it is one

    @classmethod
    def certain(cls, token: int) -> Distribution:
        return cls(None, _CERTAIN, token)

    @property
    def ids(self) -> Ids:
        return np.array([self.only]) if self._ids is None else self._ids

    def probability(self, token: int) -> float:
        """0.0 for a token that did not survive."""
        if self.only is not None:
            return 1.0 if self.only == token else 0.0
        ids = self.ids
        i = int(ids.searchsorted(token))
        return float(self.probs[i]) if i < len(ids) and ids[i] == token else 0.0

    def draw(self, rng: np.random.Generator) -> int:
        if self.only is not None:
            return self.only
        cumulated = self.probs.cumsum()
        # The last sum may be a rounding error below 1; scaling by it keeps the draw inside.
        return int(self.ids[cumulated.searchsorted(rng.random() * cumulated[-1], side="right")])


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


def distribution(
    logits: npt.NDArray[np.float32],
    params: SamplingParams,
    recent: Sequence[int] = (),
    suppressed: Ids | None = None,
) -> Distribution:
    """What the target draws its next token from.

    `logits` has shape (n_vocab,) and is not changed. `recent` are the tokens before this position, the newest last;
    the repeat penalty looks at the last `repeat_last_n` of them. `suppressed` are ids that never survive.
    """
    penalised = params.repeat_penalty != 1.0 and params.repeat_last_n > 0 and len(recent) > 0
    if penalised or (suppressed is not None and len(suppressed)):
        logits = logits.copy()
    if penalised:
        seen = np.unique(np.asarray(recent[-params.repeat_last_n :], dtype=np.int64))
        seen = seen[seen < len(logits)]
        values = logits[seen]
        logits[seen] = np.where(values > 0, values / params.repeat_penalty, values * params.repeat_penalty)
    if suppressed is not None and len(suppressed):
        logits[suppressed[suppressed < len(logits)]] = -np.inf

    if params.temperature <= 0 or params.top_k == 1:
        return Distribution.certain(int(logits.argmax()))
    ids = _survivors(logits, params)
    values = logits if ids is None else logits[ids]
    probs = np.exp((values - values.max()).astype(np.float64) / params.temperature)
    probs /= probs.sum()
    return Distribution(np.arange(len(logits)) if ids is None else ids, probs)


def _survivors(logits: npt.NDArray[np.float32], params: SamplingParams) -> Ids | None:
    """Ids that top-k, top-p and min-p leave, ascending; None for all of them.

    Each filter keeps the head of the vocabulary sorted by logit, so one order and the shortest head serve all three.
    """
    n_vocab = len(logits)
    has_top_k = 0 < params.top_k < n_vocab
    if not has_top_k and params.top_p >= 1.0:
        return np.flatnonzero(logits >= logits.max() + np.log(params.min_p)) if params.min_p > 0 else None
    head = min(params.top_k, n_vocab) if has_top_k else 256
    total = None if has_top_k else np.exp((logits - logits.max()).astype(np.float64)).sum()
    while True:
        ids = best_first(logits, head)
        values = logits[ids]
        weights = np.exp((values - values[0]).astype(np.float64))  # relative to the best
        cumulated = weights.cumsum()
        wanted = params.top_p * (cumulated[-1] if total is None else total)
        if cumulated[-1] >= wanted or head >= n_vocab:
            break
        head *= 8  # without top-k: look among the largest few before sorting the whole vocabulary
    keep = len(ids)
    if params.top_p < 1.0:
        keep = min(keep, int(cumulated.searchsorted(wanted)) + 1)
    if params.min_p > 0:
        keep = min(keep, int(np.count_nonzero(weights >= params.min_p)))
    ids = ids[: max(keep, 1)]
    ids.sort()
    return ids


def best_first(logits: npt.NDArray[np.float32], k: int) -> Ids:
    """Ids of the k largest logits, largest first; the lower id comes first among equals.

    The k-th largest of the columns' maxima is a lower bound for the k-th largest logit, because at least k logits
    reach it. Only the few columns that reach the bound are looked into, which spares sorting the vocabulary.
    """
    n_columns = len(logits) // _COLUMN
    if k >= n_columns:
        return np.argsort(-logits, kind="stable")[:k]
    body = logits[: n_columns * _COLUMN].reshape(_COLUMN, n_columns)
    maxima = body.max(axis=0)
    bound = np.partition(maxima, n_columns - k)[n_columns - k]
    columns = (maxima >= bound).nonzero()[0]
    rows, at = (body[:, columns] >= bound).nonzero()
    candidates = rows * n_columns + columns[at]
    rest = logits[n_columns * _COLUMN :]
    if len(rest):
        candidates = np.concatenate((candidates, n_columns * _COLUMN + (rest >= bound).nonzero()[0]))
    # Rows and columns ascend, so a stable sort of the negated values keeps the lower id first among equals.
    order: Ids = np.argsort(-logits[candidates], kind="stable")[:k]
    found: Ids = candidates[order]
    return found
