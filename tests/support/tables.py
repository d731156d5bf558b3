"""A model without weights: a table of logits by the last token. Everything the loop needs, nothing to compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from app.engine.rounds import DrafterKind, Span, TokenSource


class TableMemory:
    """A TokenMemory whose next-token logits are `table[last token]`, shape (n_vocab, n_vocab).

    It refuses what llama.cpp would abort on, and counts what it was asked to evaluate. With `needs_marks` it is like a
    recurrent memory: it goes back only to where it was marked or kept.
    """

    def __init__(
        self,
        table: npt.ArrayLike,
        size: int = 10_000,
        capacity: int = 64,
        can_rewind: bool = True,
        needs_marks: bool = False,
    ) -> None:
        self.table = np.asarray(table, dtype=np.float32)
        self.size = size
        self.capacity = capacity
        self.can_rewind = can_rewind
        self.needs_marks = needs_marks
        self.marks: list[int] = []  # lengths that it was marked at
        self.clears = 0
        self.vocabulary_size = len(self.table)
        self.tokens: list[int] = []
        self.busy_s = 0.0
        self.evaluated = 0
        self.decodes = 0
        self.decode_hook = lambda: None
        self._rows: list[int] = []

    def decode(self, tokens: Sequence[int], outputs: int) -> None:
        self.decode_hook()
        assert 0 < len(tokens) <= self.capacity, "llama.cpp would abort"
        assert 0 <= outputs <= len(tokens)
        assert len(self.tokens) + len(tokens) <= self.size, "the caller must keep within the context"
        assert all(0 <= token < self.vocabulary_size for token in tokens), "a token out of range"
        self.tokens.extend(tokens)
        self.evaluated += len(tokens)
        self.decodes += 1
        self._rows = list(tokens[len(tokens) - outputs :])

    def logits(self, row: int) -> npt.NDArray[np.float32]:
        return self.table[self._rows[row]]

    def mark(self, ahead: int) -> None:
        if ahead:
            self.marks.append(len(self.tokens))

    def keep(self) -> None:
        self.marks.append(len(self.tokens))

    def rewind(self, length: int) -> None:
        if length < len(self.tokens):
            if not self.can_rewind:
                length = 0
            elif self.needs_marks:
                length = max((mark for mark in self.marks if mark <= length), default=0)
            if length == 0:
                self.clear()
            del self.tokens[length:]
            self.marks = [mark for mark in self.marks if mark <= length]

    def clear(self) -> None:
        self.tokens = []
        self.marks = []
        self.clears += 1


class PlainText:
    """A stream in which token 7 reads " 7"; no stop strings."""

    stopped = False

    def push(self, token: int, source: TokenSource, drafter: DrafterKind) -> str:
        return f" {token}"

    def show(self, token: int) -> str:
        return f" {token}"

    def release(self) -> tuple[Span, ...]:
        return ()


def random_table(n_vocab: int, seed: int, spread: float = 2.0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(scale=spread, size=(n_vocab, n_vocab)).astype(np.float32)
