"""From the bytes of tokens to text that may be shown: characters, stop strings, reasoning apart from the answer."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from app.engine.rounds import DrafterKind, Span, TokenSource

_NEWLINES = "\r\n"


class Piece(Protocol):
    """The bytes of a token; those of a control token only if `special`."""

    def __call__(self, token: int, *, special: bool = False) -> bytes: ...


@dataclass(frozen=True)
class ReasoningTags:
    """How a model marks its reasoning. `answer` opens an answer that has no reasoning before it, if that is marked."""

    opening: str
    closing: str
    answer: str = ""


KNOWN_REASONING_TAGS = (
    ReasoningTags("<think>", "</think>"),
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags(
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|channel|>final<|message|>",
    ),
)


class _Place(Enum):
    """Where in the answer the text is that comes next."""

    start = auto()  # nothing but white space so far: only here an opening tag counts
    reasoning_start = auto()
    reasoning = auto()
    answer_start = auto()  # behind a closing tag
    answer = auto()


@dataclass
class _Token:
    """A token's text that has not been released yet, and who it came from."""

    index: int
    text: str
    source: TokenSource
    drafter: DrafterKind


class TextStream:
    """Takes the tokens of one answer and releases their text as soon as no later token can change what it is.

    Held back are incomplete characters, a tail that may become a stop string or a tag, newlines around reasoning.
    """

    def __init__(
        self,
        piece: Piece,
        *,
        stop: Sequence[str] = (),
        reasoning: ReasoningTags | None = None,
        starts_in_reasoning: bool = False,
    ) -> None:
        self.stopped = False
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(text for text in stop if text)
        self._tail = ""  # of the decoded text: shorter than the longest stop string
        self._tags = reasoning
        self._starts_in_reasoning = starts_in_reasoning and reasoning is not None
        if self._starts_in_reasoning:
            self._place = _Place.reasoning_start
        else:
            self._place = _Place.start if reasoning else _Place.answer
        self._held: list[_Token] = []
        self._ready: list[tuple[int, Span]] = []  # with the index of the token
        self._pushed = 0
        self._last = (TokenSource.plain, DrafterKind.none)
        self._answer_parts: list[str] = []
        self._reasoning_parts: list[str] = []

    @property
    def text(self) -> str:
        """The answer as far as it is released."""
        return "".join(self._answer_parts)

    @property
    def reasoning(self) -> str:
        """The reasoning as far as it is released."""
        return "".join(self._reasoning_parts)

    @property
    def is_reasoning(self) -> bool:
        """Whether what comes next would still be reasoning."""
        return self._place in (_Place.reasoning_start, _Place.reasoning)

    def push(self, token: int, source: TokenSource, drafter: DrafterKind) -> str:
        """What the token adds to the decoded text; sets `stopped` if that completes a stop string."""
        if self.stopped:
            return ""
        self._last = (source, drafter)
        text = self._decoder.decode(self._bytes_of(token))
        self._take(text)
        return text

    def show(self, token_id: int) -> str:
        """How a token reads on its own: a rejected one is in no text."""
        return self._piece(token_id, special=True).decode("utf-8", "replace")

    def release(self) -> tuple[Span, ...]:
        """The text that may be shown now, one span for each token and channel."""
        spans = tuple(span for _, span in self._ready)
        self._ready.clear()
        for span in spans:
            (self._reasoning_parts if span.is_reasoning else self._answer_parts).append(span.text)
        return spans

    def finish(self) -> tuple[Span, ...]:
        """The rest, now that nothing follows: what was held back for a tag or a stop string was text after all."""
        if not self.stopped:
            self._take(self._decoder.decode(b"", final=True))
        self._advance(self._held_length(), is_final=True)
        return self.release()

    def _bytes_of(self, token: int) -> bytes:
        shown = self._piece(token)
        if shown or not (expected := self._expected_tags()):
            return shown
        # A control token has no text of its own, but may be a tag or a part of one.
        hidden = self._piece(token, special=True)
        name = hidden.decode("utf-8", "replace")
        return hidden if name and any(name in tag for tag in expected) else b""

    def _expected_tags(self) -> tuple[str, ...]:
        if self._tags is None:
            return ()
        if self._place is _Place.start:
            return (self._tags.opening, self._tags.answer)
        if self._place is _Place.reasoning_start:
            return (self._tags.opening, self._tags.closing)
        return (self._tags.closing,) if self._place is _Place.reasoning else ()

    def _take(self, text: str) -> None:
        if not text:
            return
        if self._place is _Place.answer and not self._stops and not self._held:
            # By far the most tokens: nothing that follows can change what they are.
            self._ready.append((self._pushed, Span(text, *self._last)))
            self._pushed += 1
            return
        self._held.append(_Token(self._pushed, text, *self._last))
        self._pushed += 1
        seen = self._tail + text
        cut = self._first_stop(seen)
        if cut is not None:
            self.stopped = True
            self._drop_last(len(seen) - cut)
            self._advance(self._held_length(), is_final=False)
            return
        longest = max(map(len, self._stops), default=0)
        self._tail = seen[max(0, len(seen) - longest + 1) :] if longest else ""
        self._advance(self._held_length() - _open_end(self._tail, self._stops), is_final=False)

    def _first_stop(self, seen: str) -> int | None:
        """Where the stop string begins that is complete first, so that it does not matter how the text is cut."""
        found = [(at + len(stop), at) for stop in self._stops if (at := seen.find(stop)) >= 0]
        return min(found)[1] if found else None

    # -- reasoning apart from answer ------------------------------------------------------------------------------

    def _advance(self, length: int, *, is_final: bool) -> None:
        """Sorts the first `length` characters held, as far as what they are is settled."""
        length = max(0, length)
        while length:
            text = "".join(token.text for token in self._held)[:length]
            used = self._step(text, is_final)
            if not used:
                return
            length -= used

    def _step(self, text: str, is_final: bool) -> int:
        """One decision at the present place. Returns how many characters it settled; 0: more text is needed."""
        if self._place is _Place.answer or self._tags is None:
            return self._emit(len(text), is_reasoning=False)
        if self._place is _Place.start:
            return self._step_at_start(text, is_final)
        if self._place is _Place.reasoning_start:
            return self._step_into_reasoning(text, is_final)
        if self._place is _Place.reasoning:
            return self._step_in_reasoning(text, is_final)
        newlines = len(text) - len(text.lstrip(_NEWLINES))
        if newlines < len(text):
            self._place = _Place.answer
        return self._drop(newlines) if newlines else self._emit(len(text), is_reasoning=False)

    def _step_at_start(self, text: str, is_final: bool) -> int:
        assert self._tags is not None
        body = text.lstrip()
        blank = len(text) - len(body)
        places = {self._tags.opening: _Place.reasoning_start, self._tags.answer: _Place.answer_start}
        for tag, next_place in places.items():
            if tag and body.startswith(tag):
                self._place = next_place
                return self._drop(blank + len(tag))
            if tag and tag.startswith(body) and not is_final:
                return 0
        self._place = _Place.answer
        return self._emit(len(text), is_reasoning=False)

    def _step_into_reasoning(self, text: str, is_final: bool) -> int:
        """Drops newlines, and the opening tag of a model that repeats the one its prompt ends with."""
        assert self._tags is not None
        newlines = len(text) - len(text.lstrip(_NEWLINES))
        if newlines:
            return self._drop(newlines)
        if self._starts_in_reasoning:
            if text.startswith(self._tags.opening):
                self._starts_in_reasoning = False
                return self._drop(len(self._tags.opening))
            if self._tags.opening.startswith(text) and not is_final:
                return 0
        self._place = _Place.reasoning
        return self._step_in_reasoning(text, is_final)

    def _step_in_reasoning(self, text: str, is_final: bool) -> int:
        assert self._tags is not None
        end = text.find(self._tags.closing)
        if end >= 0:
            kept = len(text[:end].rstrip(_NEWLINES))
            self._emit(kept, is_reasoning=True)
            self._drop(end - kept + len(self._tags.closing))
            self._place = _Place.answer_start
            return end + len(self._tags.closing)
        settled = text if is_final else text[: len(text) - _open_end(text, (self._tags.closing,))]
        kept = len(settled.rstrip(_NEWLINES))
        self._emit(kept, is_reasoning=True)
        return kept + self._drop(len(text) - kept) if is_final else kept

    # -- the text held --------------------------------------------------------------------------------------------

    def _held_length(self) -> int:
        return sum(len(token.text) for token in self._held)

    def _emit(self, length: int, *, is_reasoning: bool) -> int:
        """Moves characters from the front of the held text to the released ones."""
        left = length
        while left:
            token = self._held[0]
            text, token.text = token.text[:left], token.text[left:]
            left -= len(text)
            if not token.text:
                self._held.pop(0)
            if self._ready and self._ready[-1][0] == token.index and self._ready[-1][1].is_reasoning == is_reasoning:
                text = self._ready.pop()[1].text + text
            self._ready.append((token.index, Span(text, token.source, token.drafter, is_reasoning)))
        return length

    def _drop(self, length: int) -> int:
        left = length
        while left:
            token = self._held[0]
            dropped = min(left, len(token.text))
            token.text = token.text[dropped:]
            left -= dropped
            if not token.text:
                self._held.pop(0)
        return length

    def _drop_last(self, length: int) -> None:
        while length:
            token = self._held[-1]
            dropped = min(length, len(token.text))
            token.text = token.text[: len(token.text) - dropped]
            length -= dropped
            if not token.text:
                self._held.pop()


def _open_end(text: str, wanted: Sequence[str]) -> int:
    """The length of the longest end of `text` with which one of `wanted` begins without being complete."""
    longest = min(len(text), max(map(len, wanted), default=1) - 1)
    for length in range(longest, 0, -1):
        end = text[-length:]
        if any(len(word) > length and word.startswith(end) for word in wanted):
            return length
    return 0
