"""From logits and SamplingParams to the target's distribution over the tokens that survive its filters.

The filters run in llama.cpp's order: repeat penalty, top-k, top-p, min-p, temperature; top-p and min-p see the
distribution before the temperature. A temperature of 0 is the limit: one token survives.
Drafts are drawn from the same function over the draft's logits, so that the two distributions are as near as they can be.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.engine.protocol import MAX_DRAFT_LENGTH, GenerationRequest, SamplingParams
from app.errors import UsageError

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

_CERTAIN = np.ones(1)
_CERTAIN.flags.writeable = False
_COLUMN = 32  # logits that one maximum stands for in the search for the top k


@dataclass(frozen=True, eq=False)
class Distribution:
    """Probabilities over the surviving tokens. `ids` ascend; `probs` sum to 1. Both have shape (survivors,)."""

    ids: Ids
    probs: Floats

    @classmethod
    def certain(cls, token: int) -> Distribution:
        return cls(np.array([token]), _CERTAIN)

    def probability(self, token: int) -> float:
        """0.0 for a token that did not survive."""
        i = int(self.ids.searchsorted(token))
        return float(self.probs[i]) if i < len(self.ids) and self.ids[i] == token else 0.0

    def draw(self, rng: np.random.Generator) -> int:
        if len(self.ids) == 1:
            return int(self.ids[0])
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

    ids: Ids | None = None  # None: all of them
    if 0 < params.top_k < len(logits):
        ids = top_k(logits, params.top_k)
        logits = logits[ids]
    best = logits.max()
    if params.top_p < 1.0:
        keep = _nucleus(logits, best, params.top_p)
        ids, logits = (keep if ids is None else ids[keep]), logits[keep]
    if params.min_p > 0:
        keep = np.flatnonzero(logits >= best + np.log(params.min_p))
        ids, logits = (keep if ids is None else ids[keep]), logits[keep]
    if ids is None:
        ids = np.arange(len(logits))

    probs = np.exp((logits - best).astype(np.float64) / params.temperature)
    probs /= probs.sum()
    return Distribution(ids, probs)


def top_k(logits: npt.NDArray[np.float32], k: int) -> Ids:
    """Ids of the k largest logits, ascending; the lower id wins among equals. Requires 0 < k < len(logits).

    The k-th largest of the columns' maxima is a lower bound for the k-th largest logit, because at least k logits
    reach it. Only the few columns that reach the bound are looked into, which spares sorting the vocabulary.
    """
    n_columns = len(logits) // _COLUMN
    if k >= n_columns:
        candidates = np.arange(len(logits))
    else:
        body = logits[: n_columns * _COLUMN].reshape(_COLUMN, n_columns)
        maxima = body.max(axis=0)
        bound = np.partition(maxima, n_columns - k)[n_columns - k]
        columns = np.flatnonzero(maxima >= bound)
        rows, at = np.nonzero(body[:, columns] >= bound)
        rest = n_columns * _COLUMN + np.flatnonzero(logits[n_columns * _COLUMN :] >= bound)
        candidates = np.concatenate((rows * n_columns + columns[at], rest))
    if len(candidates) > k:
        candidates.sort()
        # A stable sort of the negated values keeps the lower id first among equals.
        candidates = candidates[np.argsort(-logits[candidates], kind="stable")[:k]]
    candidates.sort()
    return candidates


def _nucleus(logits: npt.NDArray[np.float32], best: np.float32, top_p: float) -> Ids:
    """Indices, ascending, of the fewest largest whose probabilities reach `top_p`; always at least one."""
    probs = np.exp((logits - best).astype(np.float64))
    wanted = top_p * probs.sum()
    # The nucleus is nearly always small: look among the largest few before sorting the whole vocabulary.
    size = 256
    while True:
        among = top_k(logits, size) if size < len(logits) else np.arange(len(logits))
        order = among[np.argsort(-probs[among], kind="stable")]
        cumulated = probs[order].cumsum()
        if cumulated[-1] >= wanted or size >= len(logits):
            break
        size *= 8
    keep = order[: int(cumulated.searchsorted(wanted)) + 1]
    keep.sort()
    return keep
