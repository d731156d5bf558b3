"""The verdict on a pair: a coloured shape and a sentence."""

from __future__ import annotations

from enum import StrEnum

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.ui.theme import Appearance
from app.ui.widgets.icons import Icon, draw_icon
from app.ui.widgets.labels import Label


class Verdict(StrEnum):
    open = "open"  # a file is missing
    checking = "checking"
    fits = "fits"
    unfit = "unfit"


_LOOKS = {
    Verdict.open: (Icon.info, "faint"),
    Verdict.checking: (Icon.info, "faint"),
    Verdict.fits: (Icon.check, "draft"),
    Verdict.unfit: (Icon.error, "error"),
}


class VerdictLine(QWidget):
    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.verdict = Verdict.open
        self.sentence = Label(appearance, wraps=True)
        self._shape = _Shape(appearance)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(appearance.px(8))
        layout.addWidget(self._shape)
        layout.addWidget(self.sentence, 1)
        self.setMinimumHeight(appearance.px(40))  # two lines: the dialog does not jump with the verdict

    def show_verdict(self, verdict: Verdict, sentence: str) -> None:
        self.verdict = verdict
        self.sentence.setText(sentence)
        self.sentence.set_token("soft" if verdict in (Verdict.open, Verdict.checking) else "text")
        self.setAccessibleName(sentence)
        self._shape.show_look(*_LOOKS[verdict])


class _Shape(QWidget):
    def __init__(self, appearance: Appearance) -> None:
        super().__init__()
        self._appearance = appearance
        self._icon, self._token = _LOOKS[Verdict.open]

    def show_look(self, icon: Icon, token: str) -> None:
        self._icon, self._token = icon, token
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(self._appearance.px(18), self._appearance.px(18))

    def paintEvent(self, event: QPaintEvent) -> None:
        side = self._appearance.px(18)
        rect = QRectF(0, (self.height() - side) / 2, side, side)
        draw_icon(QPainter(self), self._icon, rect, self._appearance.theme.color(self._token))
