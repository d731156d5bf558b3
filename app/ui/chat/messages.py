"""What the transcript shows of a message, and the answer while it is being written."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.chat import Role
from app.engine.rounds import DrafterKind, Span, TokenSource
from app.ui.chat.fences import Segment, SegmentScanner


@dataclass(frozen=True)
class ShownMessage:
    """A message as the transcript has it. `spans` colour the text by source; without them it has no tint."""

    role: Role
    text: str = ""
    reasoning: str = ""
    spans: tuple[Span, ...] = ()
    footer: str = ""
    notice: str = ""
    reasoning_s: float | None = None  # None: not known


@dataclass(frozen=True)
class SourceRun:
    """A stretch of text from one source."""

    start: int
    end: int
    source: TokenSource
    drafter: DrafterKind


class SourceRuns:
    """The sources of a growing text, neighbours of one source joined."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._kinds: list[tuple[TokenSource, DrafterKind]] = []
        self._end = 0

    def append(self, span: Span) -> None:
        kind = (span.source, span.drafter)
        if not self._kinds or self._kinds[-1] != kind:
            self._starts.append(self._end)
            self._kinds.append(kind)
        self._end += len(span.text)

    def skip(self, length: int) -> None:
        """Text of which no source is known stands first."""
        self._end += length

    def between(self, start: int, end: int) -> list[SourceRun]:
        """The runs of text[start:end], counted from `start`."""
        runs = []
        for i in range(max(0, bisect_right(self._starts, start) - 1), len(self._starts)):
            first = max(start, self._starts[i])
            last = min(end, self._starts[i + 1] if i + 1 < len(self._starts) else self._end)
            if self._starts[i] >= end:
                break
            if first < last:
                runs.append(SourceRun(first - start, last - start, *self._kinds[i]))
        return runs


class Answer:
    """An answer and its segments. Open while it is being written."""

    def __init__(self, message: ShownMessage | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.text = ""
        self.reasoning = ""
        self.footer = ""
        self.notice = ""
        self.reasoning_s: float | None = None
        self.is_open = True
        self.reasoning_folded: bool | None = None  # as the reader chose
        self.text_runs = SourceRuns()
        self.reasoning_runs = SourceRuns()
        self._scanner = SegmentScanner()
        self._spans: list[Span] = []
        self._clock = clock
        self._thinking_since: float | None = None
        if message:
            self._take(message)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._scanner.segments

    @property
    def is_thinking(self) -> bool:
        return self.is_open and bool(self.reasoning) and not self.text

    @property
    def is_folded(self) -> bool:
        return not self.is_thinking if self.reasoning_folded is None else self.reasoning_folded

    def append(self, spans: Sequence[Span]) -> None:
        for span in spans:
            self._spans.append(span)
            if span.is_reasoning:
                if self._thinking_since is None:
                    self._thinking_since = self._clock()
                self.reasoning_runs.append(span)
            else:
                self._stop_thinking()
                self.text_runs.append(span)
        self.reasoning += "".join(span.text for span in spans if span.is_reasoning)
        self.text += "".join(span.text for span in spans if not span.is_reasoning)
        self._scanner.scan(self.text)

    def finish(self, footer: str, notice: str) -> None:
        self._stop_thinking()
        self._scanner.finish(self.text)
        self.footer, self.notice, self.is_open = footer, notice, False

    def shown(self) -> ShownMessage:
        return ShownMessage(
            Role.assistant, self.text, self.reasoning, tuple(self._spans), self.footer, self.notice, self.reasoning_s
        )

    def reopen(self) -> None:
        """Go on writing a message that was shown before."""
        self._scanner = SegmentScanner()
        self._scanner.scan(self.text)
        self.is_open = True

    def _take(self, message: ShownMessage) -> None:
        if not message.spans:
            self.text_runs.skip(len(message.text))
            self.reasoning_runs.skip(len(message.reasoning))
        self.append(message.spans)
        self.text, self.reasoning, self.reasoning_s = message.text, message.reasoning, message.reasoning_s
        self._thinking_since = None
        self._scanner = SegmentScanner()
        self.finish(message.footer, message.notice)

    def _stop_thinking(self) -> None:
        if self._thinking_since is not None and self.reasoning_s is None:
            self.reasoning_s = self._clock() - self._thinking_since
