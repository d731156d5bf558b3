"""The samplers that look back on the text: bias, repeat penalties, and DRY.

They write into the logits they are given. What they look back on is the text with the draft tokens before the
position, so that a position sees the same with and without a draft. Definitions are llama.cpp's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from app.engine.distribution import Ids, Logits

Spellings = Callable[[str], Iterable[tuple[int, ...]]]

_LOG_OF_LARGEST = 88.7228391  # the exponent of DRY ends where its power would leave single precision
_LONGEST_BREAKER = 40  # bytes
_LONGEST_TAIL = 20  # tokens


def window(tokens: Sequence[int], drafted: Sequence[int], length: int) -> list[int]:
    """The last `length` tokens of the text `tokens` followed by the draft tokens `drafted`."""
    if len(drafted) >= length:
        return list(drafted[len(drafted) - length :])
    return [*tokens[max(len(tokens) - (length - len(drafted)), 0) :], *drafted]


class RepeatPenalties:
    """Repeat (Keskar et al. 2019, arXiv 1909.05858), frequency and presence penalties on what stands in the window."""

    def __init__(self, repeat: float, frequency: float, presence: float, last_n: int) -> None:
        self._repeat = repeat
        self._frequency = frequency
        self._presence = presence
        self._last_n = last_n

    def apply(self, ids: Ids | None, logits: Logits, tokens: Sequence[int], drafted: Sequence[int]) -> None:
        recent = window(tokens, drafted, self._last_n)
        if not recent:
            return
        if self._frequency == 0.0 and self._presence == 0.0:
            places, _ = _places(ids, np.unique(np.array(recent)), len(logits))
            logits[places] = self._repeated(logits[places])
            return
        seen, counts = np.unique(np.array(recent), return_counts=True)
        places, which = _places(ids, seen, len(logits))
        logits[places] = self._repeated(logits[places]) - (counts[which] * self._frequency + self._presence)

    def _repeated(self, values: Logits) -> Logits:
        # Dividing alone would make tokens with negative logits more likely.
        return np.where(values > 0, values / self._repeat, values * self._repeat)


class Dry:
    """Don't repeat yourself: a token that goes on with a repetition loses multiplier * base ** (length - allowed).

    From text-generation-webui, pull request 5677. A repetition does not reach back over a sequence breaker:
    `breakers` are token sequences that spell one.
    """

    def __init__(
        self, multiplier: float, base: float, allowed: int, last_n: int, breakers: Iterable[tuple[int, ...]] = ()
    ) -> None:
        self._multiplier = multiplier
        self._base = base
        self._allowed = allowed
        self._last_n = last_n
        self._most = int(_LOG_OF_LARGEST / math.log(base)) if base > 1.000001 else last_n  # exponent
        self._tails: dict[int, list[tuple[int, ...]]] = {}  # of the breakers, by first token
        for first, *tail in breakers:
            self._tails.setdefault(first, []).append(tuple(tail))

    def apply(self, ids: Ids | None, logits: Logits, tokens: Sequence[int], drafted: Sequence[int]) -> None:
        recent = window(tokens, drafted, self._last_n)
        if len(recent) <= self._allowed:
            return
        limit = self._since_breaker(recent)
        if limit < self._allowed:
            return
        lengths = {
            token: length
            for token, length in self._continuations(recent, limit).items()
            if () not in self._tails.get(token, ())
        }
        if not lengths:
            return
        found = np.array(sorted(lengths))
        places, which = _places(ids, found, len(logits))
        exponents = np.array([min(lengths[token] - self._allowed, self._most) for token in found[which].tolist()])
        with np.errstate(over="ignore"):  # a token that loses more than there are numbers cannot be drawn
            logits[places] -= self._multiplier * self._base ** exponents.astype(np.float64)

    def _since_breaker(self, recent: Sequence[int]) -> int:
        """How many tokens stand behind the last breaker; all, if there is none."""
        if self._tails:
            for i, token in enumerate(reversed(recent)):
                tails = self._tails.get(token)
                if tails is None:
                    continue
                following = recent[len(recent) - i :]
                matching = [len(tail) for tail in tails if tuple(following[: len(tail)]) == tail]
                if matching:
                    return i - max(matching)
        return len(recent)

    def _continuations(self, recent: Sequence[int], limit: int) -> Mapping[int, int]:
        """Tokens that followed an earlier copy of the text's end, and the length of the longest such copy.

        Copies are counted up to `limit`, and from `allowed` on. All of them grow backwards at once, token by token,
        and none further than the penalty can tell apart: the work is bounded by the window times that length.
        """
        text = np.array(recent)
        last = len(text) - 1
        follows: dict[int, int] = {}
        if self._allowed <= 0:
            follows = dict.fromkeys(recent[1:], 0)
        ends = (text[:-1] == text[last]).nonzero()[0]  # where an earlier copy ends
        most = min(limit, self._allowed + self._most)
        length = 1
        while len(ends) and length <= most:
            if length >= self._allowed:
                follows.update(dict.fromkeys(text[ends + 1].tolist(), length))
            ends = ends[ends >= length]
            ends = ends[text[ends - length] == text[last - length]]
            length += 1
        return follows


def biased(logits: Logits, bias: Sequence[tuple[int, float]]) -> None:
    """Add each bias to its token's logit; ids that the vocabulary lacks are passed over."""
    for token, by in bias:
        if token < len(logits):
            logits[token] += by


def spellings(text: str, pieces: Sequence[bytes], tokenize: Callable[[str], Sequence[int]]) -> list[tuple[int, ...]]:
    """All ways in which tokens may begin to spell a sequence breaker, and what then follows.

    `pieces` are the bytes of every token, by id. A token that holds the text is one alone; a token that ends with the
    text's beginning is one with the tokens of the rest behind it.
    """
    text = text.encode()[:_LONGEST_BREAKER].decode(errors="ignore")
    wanted = text.encode()
    found: dict[tuple[int, ...], None] = {}
    tails = {text[:n].encode(): tuple(tokenize(text[n:]))[:_LONGEST_TAIL] for n in range(1, len(text))}
    for token, piece in enumerate(pieces):
        if wanted in piece:
            found[token,] = None
            continue
        for overlap, tail in tails.items():
            if piece.endswith(overlap):
                found[token, *tail] = None
    return list(found)


def _places(ids: Ids | None, tokens: Ids, n: int) -> tuple[Ids, Ids]:
    """Where `tokens` (sorted, each once) stand among n candidates, and which of them stand there at all."""
    if ids is None:
        inside = int(tokens.searchsorted(n))
        return tokens[:inside], np.arange(inside)
    order = ids.argsort(kind="stable")
    at = np.minimum(ids.searchsorted(tokens, sorter=order), len(ids) - 1)
    places = order[at]
    which = (ids[places] == tokens).nonzero()[0]
    return places[which], which
