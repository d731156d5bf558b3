"""Cuts an answer into text and code while it arrives. It goes by whole lines, so chunks do not move the cuts."""

from __future__ import annotations

import re
from dataclasses import dataclass

SPLIT_AT = 4096  # characters after which a text segment ends at the next safe place: bounds what a frame re-renders

_OPENING = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)")
_MAYBE_OPENING = re.compile(r" {0,3}(?:`{1,2}|~{1,2}|`{3,}[^`]*|~{3,}.*)")  # more of the line may make it a fence
_CLOSING = re.compile(r" {0,3}(`+|~+)[ \t]*")
_LIST_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:\s|$)")


@dataclass
class Segment:
    """A slice of the raw answer. For code, the slice is what stands between the fences."""

    is_code: bool
    start: int
    end: int
    language: str = ""
    indent: int = 0  # of the opening fence; taken off each line of code
    is_closed: bool = False

    def content(self, raw: str) -> str:
        text = raw[self.start : self.end]
        return re.sub(rf"(?m)^ {{1,{self.indent}}}", "", text) if self.indent else text


class SegmentScanner:
    """Feed it the growing answer with `scan`. Only the last segment may change; `finish` says there is no more."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._line = 0  # where the first line not looked at begins
        self._fence = ""  # the opening fence while inside code
        self._after_blank = False
        self._whole_lines: tuple[int, int] | None = None  # segments, and end of the last, without the unfinished line

    def scan(self, raw: str) -> None:
        """`raw` is everything so far; it must begin with what was passed before."""
        self._drop_unfinished_line()
        while (newline := raw.find("\n", self._line)) >= 0:
            self._take_line(raw[self._line : newline], newline + 1)
            self._line = newline + 1
        rest = raw[self._line :]
        if rest and not rest.isspace() and not self._may_be_fence(rest):
            self._whole_lines = (len(self.segments), self.segments[-1].end if self.segments else 0)
            self._extend(self._line, len(raw))

    def finish(self, raw: str) -> None:
        self.scan(raw)
        self._drop_unfinished_line()
        if self._line < len(raw):
            self._take_line(raw[self._line :], len(raw))
            self._line = len(raw)
        if self.segments:
            self.segments[-1].is_closed = True

    def _drop_unfinished_line(self) -> None:
        if self._whole_lines is not None:
            count, end = self._whole_lines
            del self.segments[count:]
            if count and not self.segments[-1].is_closed:
                self.segments[-1].end = end
            self._whole_lines = None

    def _may_be_fence(self, rest: str) -> bool:
        if self._fence:
            closing = _CLOSING.fullmatch(rest)
            return closing is not None and closing[1][0] == self._fence[0]
        return _MAYBE_OPENING.fullmatch(rest) is not None

    def _take_line(self, line: str, next_line: int) -> None:
        line = line.removesuffix("\r")
        if self._fence:
            closing = _CLOSING.fullmatch(line)
            if closing and closing[1].startswith(self._fence):
                self.segments[-1].is_closed = True
                self._fence = ""
                self._after_blank = False
            else:
                self._extend(self._line, self._line + len(line))
        elif opening := _OPENING.fullmatch(line):
            self._close_text()
            indent, self._fence, info = len(opening[1]), opening[2], opening[3].strip()
            language = info.split()[0].strip("{}.") if info else ""
            self.segments.append(Segment(True, next_line, next_line, language, indent))
        elif not line.strip():
            self._after_blank = True
        else:
            if self._is_safe_cut(line):
                self._close_text()
            self._extend(self._line, self._line + len(line))
            self._after_blank = False

    def _extend(self, line: int, end: int) -> None:
        """Add text to the open segment, or open one for text that begins at `line`."""
        if not self.segments or self.segments[-1].is_closed:
            self.segments.append(Segment(False, line, line))
        self.segments[-1].end = end

    def _close_text(self) -> None:
        if self.segments:
            self.segments[-1].is_closed = True

    def _is_safe_cut(self, line: str) -> bool:
        """Would the text mean the same in two documents, cut before this line? A long tight list may be cut, too."""
        if not self.segments or self.segments[-1].is_closed:
            return False
        size = self._line - self.segments[-1].start
        if size <= SPLIT_AT or line[0] in " \t":
            return False
        if _LIST_ITEM.match(line):
            return size > 2 * SPLIT_AT
        return self._after_blank
