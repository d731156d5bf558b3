"""The foldable block above an answer with what a reasoning model thought before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.ui.chat.alignment import plain_positions
from app.ui.chat.messages import Answer, SourceRun
from app.ui.chat.surface import PlainSurface
from app.ui.theme import CONTROL, Appearance
from app.ui.widgets.buttons import FoldButton

_LINE, _INDENT = 20, 16


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
