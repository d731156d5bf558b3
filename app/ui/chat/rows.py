"""The messages of a transcript as a column of heights: estimated until a message was laid out once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from app.chat import Role
from app.ui.chat.column import TEXT_LINE
from app.ui.chat.messages import Answer, ShownMessage
from app.ui.chat.views import MessageView
from app.ui.theme import TEXT, Appearance

_ABOVE, _BETWEEN, _BELOW = 24, 28, 24
_ASIDE = 40  # footer or bubble around the text


@dataclass
class Row:
    """A message. `answer` is there from the first time an answer is looked at; `view` only while it is near."""

    key: int
    message: ShownMessage
    answer: Answer | None = None
    view: MessageView | None = None
    height: int = 0
    is_measured: bool = False

    def shown(self) -> ShownMessage:
        return self.answer.shown() if self.answer else self.message


class Rows:
    """Positions are pixels from the top of the whole transcript.

    The anchor is what the reader looks at, the first row in sight: heights above it may change, it stays where it is.
    """

    def __init__(self, appearance: Appearance) -> None:
        self._appearance = appearance
        self._rows: list[Row] = []
        self._tops: list[int] = []  # of the rows, and where the next one would begin
        self._anchor = 0
        self._anchor_offset = 0.0  # how much of the anchor is above the viewport

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> Row:
        return self._rows[index]

    def append(self, row: Row, width: int) -> None:
        row.height = self._estimate(row.message, width)
        self._rows.append(row)
        if len(self._tops) == len(self._rows):
            self._tops.append(self._tops[-1] + row.height + self._appearance.px(_BETWEEN))

    def clear(self) -> None:
        self._rows.clear()
        self._tops.clear()

    def forget_heights(self, width: int) -> None:
        """The column or the font changed."""
        for index, row in enumerate(self._rows):
            estimate = self._estimate(row.shown(), width)
            self._scale_anchor(index, row.height, estimate)
            row.height, row.is_measured = estimate, False
        self._tops.clear()

    def set_height(self, index: int, height: int) -> bool:
        """Take a measured height. True if it differs from what was assumed."""
        row = self._rows[index]
        difference = height - row.height
        if not row.is_measured:
            self._scale_anchor(index, row.height, height)
        row.height, row.is_measured = height, True
        if difference and index == len(self._rows) - 1 and self._tops:
            self._tops[-1] += difference
        elif difference:
            self._tops.clear()
        return difference != 0

    def set_anchor(self, y: int) -> None:
        """The viewport begins at y now."""
        self._anchor, self._anchor_offset = self.at(y), 0.0
        if self._rows:
            if self._anchor + 1 < len(self._rows) and y > self.top(self._anchor) + self._rows[self._anchor].height:
                self._anchor += 1  # y is in the gap above it
            self._anchor_offset = y - self.top(self._anchor)

    @property
    def anchored_value(self) -> int:
        """Where the viewport has to begin for the anchor to be where it was."""
        if self._anchor >= len(self._rows):
            return 0
        return round(self.top(self._anchor) + min(self._anchor_offset, self._rows[self._anchor].height))

    def _scale_anchor(self, index: int, old: int, new: int) -> None:
        """The same words stand elsewhere in a message laid out anew; one that only grew is not scaled."""
        if index == self._anchor and self._anchor_offset > 0 and old:
            self._anchor_offset *= new / old

    def top(self, index: int) -> int:
        self._measure()
        return self._tops[index]

    def at(self, y: int) -> int:
        """The row at this height, or the nearest; 0 if there is none."""
        self._measure()
        return max(0, min(len(self._rows), bisect_right(self._tops, y)) - 1)

    @property
    def total(self) -> int:
        if not self._rows:
            return 0
        self._measure()
        px = self._appearance.px
        return self._tops[-1] - px(_BETWEEN) + px(_BELOW)

    def _measure(self) -> None:
        if len(self._tops) == len(self._rows) + 1:
            return
        gap = self._appearance.px(_BETWEEN)
        self._tops = [self._appearance.px(_ABOVE)]
        for row in self._rows:
            self._tops.append(self._tops[-1] + row.height + gap)

    def _estimate(self, message: ShownMessage, width: int) -> int:
        px = self._appearance.px
        width = min(width, px(400)) if message.role is Role.user else width
        letters = max(1, width // max(1, px(TEXT) // 2))
        lines = message.text.count("\n") + len(message.text) // letters + 1
        return lines * px(TEXT_LINE) + px(_ASIDE)
