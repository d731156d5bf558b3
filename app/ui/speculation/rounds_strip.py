"""The last rounds as columns of marks, with the texts and times of a round in a tooltip, and the legend below."""

from __future__ import annotations

import html
from collections import Counter, deque

from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, Qt
from PySide6.QtGui import QFocusEvent, QHelpEvent, QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QToolTip

from app.engine.protocol import MAX_DRAFT_LENGTH
from app.engine.rounds import Round
from app.ui.speculation.charts import Chart
from app.ui.speculation.marks import Mark, draw_mark, mark_of, marks_of
from app.ui.speculation.measures import ms_texts
from app.ui.theme import HINT, Appearance

KEPT_ROUNDS = 64  # more than the widest panel shows
ROOMY_ROWS = 9
DENSE_ROWS = MAX_DRAFT_LENGTH + 1
_PITCH = 12  # pixels from column to column


class RoundsStrip(Chart):
    """Newest on the right. Arrow keys walk through the rounds as the mouse does."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance, "Rounds", 100)
        self._arrived: deque[Round] = deque(maxlen=KEPT_ROUNDS)
        self._shown: tuple[Round, ...] = ()  # what is painted and pointed at
        self._rows = ROOMY_ROWS
        self._chosen: Round | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.describe()

    def add(self, r: Round) -> None:
        """Keep a round for the next `show_arrived`."""
        self._arrived.append(r)
        if r.drafted + 1 > ROOMY_ROWS:
            self._rows = DENSE_ROWS

    def show_arrived(self) -> None:
        self._shown = tuple(self._arrived)
        if self._chosen not in self._shown:
            self._chosen = None
        self.update()

    def clear(self) -> None:
        self._arrived.clear()
        self._rows = ROOMY_ROWS
        self.show_arrived()

    @property
    def columns(self) -> tuple[Round, ...]:
        """The rounds that fit, from left to right."""
        fitting = max(1, (self.width() + self._gap) // self._pitch)
        return self._shown[-fitting:]

    def boxes(self, column: int) -> list[tuple[Mark, QRectF]]:
        """The marks of a column and where they stand, from bottom to top."""
        row = self.height() / self._rows
        size, gap = self._pitch - self._gap, max(1, round(row / 5))
        left, bottom = column * self._pitch, self.height()
        return [
            (mark, QRectF(left, round(bottom - (i + 1) * row) + gap, size, max(2, int(row) - gap)))
            for i, mark in enumerate(marks_of(self.columns[column]))
        ]

    def column_at(self, x: int) -> int | None:
        column = x // self._pitch
        return column if 0 <= column < len(self.columns) else None

    def description(self) -> str:
        if self._chosen is not None:
            return "; ".join(round_lines(self._chosen))
        if not self._shown:
            return "No rounds yet."
        counts = Counter(mark for r in self.columns for mark in marks_of(r))
        parts = ", ".join(f"{counts[mark]} {mark}" for mark in Mark if counts[mark])
        return f"The last {len(self.columns)} rounds: {parts}."

    @property
    def _pitch(self) -> int:
        return self.appearance.px(_PITCH)

    @property
    def _gap(self) -> int:
        return self.appearance.px(3)

    def _column_area(self, column: int) -> QRect:
        return QRect(column * self._pitch, 0, self._pitch, self.height())

    def _show_tooltip(self, column: int, at: QPoint) -> None:
        QToolTip.showText(at, round_html(self.columns[column]), self, self._column_area(column))

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            column = self.column_at(event.pos().x())
            if column is None:
                QToolTip.hideText()
            else:
                self._show_tooltip(column, event.globalPos())
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        columns = self.columns
        last = len(columns) - 1
        here = columns.index(self._chosen) if self._chosen in columns else None
        match event.key():
            case Qt.Key.Key_Left:
                column = last if here is None else max(0, here - 1)
            case Qt.Key.Key_Right:
                column = last if here is None else min(last, here + 1)
            case Qt.Key.Key_Home:
                column = 0
            case Qt.Key.Key_End:
                column = last
            case _:
                super().keyPressEvent(event)
                return
        if not columns:
            return
        self._chosen = columns[column]
        self.describe()
        self._show_tooltip(column, self.mapToGlobal(self._column_area(column).topRight()))
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._chosen = None
        self.describe()
        QToolTip.hideText()
        super().focusOutEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = self.appearance.theme
        painter = QPainter(self)
        if not self._shown:
            painter.setFont(self.appearance.font(HINT))
            painter.setPen(theme.color("faint"))
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, "The rounds of the next answer appear here.")
        for column, r in enumerate(self.columns):
            if r is self._chosen:
                painter.fillRect(self._column_area(column).translated(-self._gap // 2, 0), theme.color("accent_ground"))
            for mark, box in self.boxes(column):
                painter.setRenderHint(QPainter.RenderHint.Antialiasing, mark is not Mark.plain)
                draw_mark(painter, mark, box, theme)
        if self.hasFocus():
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(theme.color("accent"), 1, Qt.PenStyle.DotLine))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))


class RoundsLegend(Chart):
    """The marks and their words, in two rows."""

    _COLUMNS = 3

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance, "Legend of the rounds", 32)
        self.describe()

    def description(self) -> str:
        return ", ".join(Mark)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self.appearance.theme, self.appearance.px
        painter = QPainter(self)
        painter.setFont(self.appearance.font(HINT))
        row, third, size = self.height() / 2, self.width() / self._COLUMNS, px(8)
        for i, mark in enumerate(Mark):
            line = QRectF(round(i % self._COLUMNS * third), round(i // self._COLUMNS * row), third, row)
            box = QRectF(line.left(), round(line.center().y() - size / 2), size, size)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, mark is not Mark.plain)
            draw_mark(painter, mark, box, theme)
            painter.setPen(theme.color("soft"))
            words = line.adjusted(size + px(4), 0, 0, 0)
            painter.drawText(words, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, mark)


def round_lines(r: Round) -> list[str]:
    """A round in words: its outcome, each token with its source, and the times."""
    outcome = ", ".join(
        f"{count} {word}"
        for count, word in (
            (r.drafted, "drafted"),
            (r.accepted, "accepted"),
            (r.rejected, "rejected"),
            (r.discarded, "discarded"),
        )
        if count
    )
    tokens = [f"{mark_of(token.source, r.drafter)}: {_visible(token.text)}" for token in r.tokens]
    rejected = [f"rejected: {_visible(text)}" for text in r.rejected_texts]
    draft, verify, rest = ms_texts(r.times.draft, r.times.verify, r.times.sample)
    times = f"verify {verify}, rest {rest} ms"
    if r.drafted:
        times = f"draft {draft}, {times}"
    return [f"Round {r.number + 1}: {outcome or 'no draft'}", *tokens, *rejected, times]


def round_html(r: Round) -> str:
    """The tooltip. Escaped, because the model may well write HTML."""
    head, *rest = (html.escape(line) for line in round_lines(r))
    return f'<p style="white-space:pre"><b>{head}</b><br>{"<br>".join(rest)}</p>'


def _visible(text: str) -> str:
    if not text:
        return "(part of a character)"
    return text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
