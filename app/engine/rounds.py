"""What one round of speculative decoding leaves behind: its tokens, where each came from, its counters and times.

Named tuples, because they are made in a fraction of a frozen dataclass's time and travel as short arrays.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class TokenSource(StrEnum):
    """Who a token of the answer comes from (DESIGN, section 2)."""

    draft = "draft"  # proposed by the drafter, accepted by the target
    recovered = "recovered"  # drawn by the target at the first rejection
    bonus = "bonus"  # drawn by the target after a fully accepted draft
    plain = "plain"  # drawn by the target in a round with an empty draft


class DrafterKind(StrEnum):
    """What proposes tokens."""

    model = "model"
    lookup = "lookup"
    chained = "chained"
    none = "none"


class StopReason(StrEnum):
    end_of_turn = "end_of_turn"
    max_tokens = "max_tokens"
    stop_string = "stop_string"
    context_full = "context_full"
    cancelled = "cancelled"
    failed = "failed"


class Token(NamedTuple):
    """A token of the answer. `text` is what it added to the decoded stream; "" while a character is incomplete."""

    id: int
    source: TokenSource
    text: str = ""


class Span(NamedTuple):
    """Text released for display, cut where the source or the channel changes."""

    text: str
    source: TokenSource
    drafter: DrafterKind  # of the round the text comes from; colours lookup apart from model drafts
    is_reasoning: bool = False


class RoundTimes(NamedTuple):
    """Seconds. `sample` is everything of a round that is neither the draft's nor the target's decoding."""

    draft: float = 0.0
    verify: float = 0.0
    sample: float = 0.0

    @property
    def total(self) -> float:
        return self.draft + self.verify + self.sample


class Round(NamedTuple):
    """One draft, one target pass, one outcome.

    `drafted == accepted + rejected + discarded` always holds. `rejected` includes the draft tokens that stood after the
    first rejection; `discarded` are draft tokens behind the end of the answer, of which nobody knows the verdict.
    """

    number: int  # from 0, in the answer
    drafter: DrafterKind
    tokens: tuple[Token, ...]
    drafted: int
    accepted: int
    rejected: int
    discarded: int
    times: RoundTimes
    rejected_texts: tuple[str, ...] = ()  # in draft order, for display only
