"""How long the next draft should be.

`generate` asks for a Pace once before each round, drafters ask the Pace before each step of theirs, and every
finished round is reported to `observe`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.engine.protocol import DEFAULT_DRAFT_LENGTH, MAX_DRAFT_LENGTH
from app.engine.rounds import DrafterKind, Round
from app.engine.verify import Draft


class Pace(Protocol):
    """One round's pacing. It knows confidences, never drawn tokens: exactness rests on that (DESIGN, section 3)."""

    limit: int  # the most draft tokens there is room for

    def goes_on(self, kind: DrafterKind, pending: int) -> bool:
        """Whether the next draft token is worth computing; `pending` (>= 1) tokens must be evaluated for it."""

    def takes(self, kind: DrafterKind, confidence: float) -> bool:
        """Whether the next draft token, computed with this confidence, is worth verifying. False ends the draft."""

    def cut(self, kind: DrafterKind, confidences: Sequence[float]) -> int:
        """How many of ready draft tokens are worth verifying: their number, or fewer."""


class Pacing(Protocol):
    def begin(self, limit: int) -> Pace:
        """The pacing of the next round, which has room for `limit` (>= 0) draft tokens."""

    def observe(self, finished: Round, draft: Draft) -> None:
        """What the last round cost and brought."""


class FixedPacing:
    """The same length every round."""

    def __init__(self, length: int | None = None) -> None:
        self._length = max(0, min(MAX_DRAFT_LENGTH, DEFAULT_DRAFT_LENGTH if length is None else length))

    def begin(self, limit: int) -> Pace:
        return _FixedPace(min(limit, self._length))

    def observe(self, finished: Round, draft: Draft) -> None:
        """A fixed length learns nothing."""


class _FixedPace:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0

    def goes_on(self, kind: DrafterKind, pending: int) -> bool:
        return self._taken < self.limit

    def takes(self, kind: DrafterKind, confidence: float) -> bool:
        self._taken += 1
        return True

    def cut(self, kind: DrafterKind, confidences: Sequence[float]) -> int:
        return min(self.limit, len(confidences))
