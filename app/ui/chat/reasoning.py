"""The foldable block above an answer with what a reasoning model thought before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.ui.chat.alignment import plain_positions
from app.ui.chat.messages import Answer, SourceRun
from app.ui.chat.surface import PlainSurface
from app.ui.theme import CONTROL, LABEL, Appearance

_LINE, _HEADER, _INDENT = 20, 28, 16


class FoldButton(QAbstractButton):
    """A chevron and a title."""

    def __init__(self, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self.is_folded = False
        self.setFont(appearance.font(LABEL))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def sizeHint(self) -> QSize:
        px = self._appearance.px
        return QSize(self.fontMetrics().horizontalAdvance(self.text()) + px(28), px(_HEADER))

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self._appearance.theme, self._appearance.px
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.hasFocus():
            painter.setPen(QPen(theme.color("accent"), 1))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 2.5, -0.5, -2.5), 6, 6)
        color = theme.color("text" if self.underMouse() or self.hasFocus() else "soft")
        painter.setPen(QPen(color, 1.5))
        middle, arm = QPointF(px(9), self.height() / 2), px(3.5)
        points = [QPointF(-arm / 2, -arm), QPointF(arm / 2, 0), QPointF(-arm / 2, arm)]
        if not self.is_folded:
            points = [QPointF(-arm, -arm / 2), QPointF(0, arm / 2), QPointF(arm, -arm / 2)]
        painter.drawPolyline([middle + point for point in points])
        painter.setPen(color)
        painter.drawText(self.rect().adjusted(px(20), 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, self.text())


class ReasoningBlock(QWidget):
    """Open while the model thinks, folded once the answer begins, and as the reader likes it from then on."""

    height_changed = Signal()

    def __init__(self, answer: Answer, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(parent)
        self._answer = answer
        self._appearance = appearance
        self.button = FoldButton(appearance, self)
        self.button.clicked.connect(self._on_clicked)
        self.surface = PlainSurface(appearance, self)
        self.surface.set_style(CONTROL, _LINE, "soft")
        self.surface.setAccessibleName("Reasoning")

    def refresh(self, show_sources: bool) -> None:
        answer = self._answer
        if answer.is_thinking:
            title = "Thinking…"
        elif answer.reasoning_s is not None:
            title = f"Thought for {answer.reasoning_s:.1f} s"
        else:
            title = "Reasoning"
        self.button.setText(title)
        self.button.is_folded = answer.is_folded
        self.button.setAccessibleName(f"{title}, {'folded' if answer.is_folded else 'unfolded'}")
        self.button.update()
        self.surface.setVisible(not answer.is_folded)
        if answer.is_folded:
            return
        self.surface.set_text(answer.reasoning)
        runs: Sequence[SourceRun] = ()
        if show_sources:
            positions = plain_positions(answer.reasoning)
            found = answer.reasoning_runs.between(0, len(answer.reasoning))
            runs = [replace(run, start=positions[run.start], end=positions[run.end]) for run in found]
        self.surface.set_tints(runs)

    def height_for(self, width: int) -> int:
        px = self._appearance.px
        hint = self.button.sizeHint()
        self.button.setGeometry(0, 0, min(width, hint.width()), hint.height())
        if self._answer.is_folded:
            return hint.height()
        height = self.surface.height_for(width - px(_INDENT))
        self.surface.setGeometry(px(_INDENT), hint.height(), width - px(_INDENT), height)
        return hint.height() + height + px(4)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._answer.is_folded:
            px = self._appearance.px
            bar = QRectF(0, self.button.height(), px(2), self.height() - self.button.height() - px(4))
            QPainter(self).fillRect(bar, self._appearance.theme.color("line"))

    def _on_clicked(self) -> None:
        self._answer.reasoning_folded = not self._answer.is_folded
        self.height_changed.emit()
