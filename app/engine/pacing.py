"""How long the next draft should be.

`generate` asks `next_length` once before each round and reports every round to `observe`. A pacing that learns costs
and acceptance implements the same two methods.
"""

from __future__ import annotations

from typing import Protocol

from app.engine.protocol import DEFAULT_DRAFT_LENGTH, MAX_DRAFT_LENGTH
from app.engine.rounds import Round


class Pacing(Protocol):
    def next_length(self) -> int:
        """The draft length of the next round, 0 to MAX_DRAFT_LENGTH. 0 is a plain round."""

    def observe(self, finished: Round) -> None:
        """What the last round cost and brought."""


class FixedPacing:
    """The same length every round."""

    def __init__(self, length: int | None = None) -> None:
        self._length = max(0, min(MAX_DRAFT_LENGTH, DEFAULT_DRAFT_LENGTH if length is None else length))

    def next_length(self) -> int:
        return self._length

    def observe(self, finished: Round) -> None:
        """A fixed length learns nothing."""
