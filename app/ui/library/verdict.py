"""The verdict on a pair: a coloured shape and a sentence."""

from __future__ import annotations

from enum import StrEnum

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.ui.theme import LABEL, Appearance
from app.ui.widgets.icons import Icon, draw_icon
from app.ui.widgets.labels import Label


class Verdict(StrEnum):
    open = "open"  # a file is missing
    checking = "checking"
    fits = "fits"
    translates = "translates"  # fits, by its text instead of its tokens
    unfit = "unfit"


_LOOKS = {
    Verdict.open: (Icon.info, "faint"),
    Verdict.checking: (Icon.info, "faint"),
    Verdict.fits: (Icon.check, "draft"),
    Verdict.translates: (Icon.check, "lookup"),
    Verdict.unfit: (Icon.error, "error"),
}


class VerdictLine(QWidget):
    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.verdict = Verdict.open
        self.sentence = Label(appearance, wraps=True)
        self.detail = Label(appearance, size=LABEL, token="soft", wraps=True)
        self._shape = _Shape(appearance)
        texts = QVBoxLayout()
        texts.setSpacing(appearance.px(2))
        texts.addStretch(1)
        texts.addWidget(self.sentence)
        texts.addWidget(self.detail)
        texts.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(appearance.px(8))
        layout.addWidget(self._shape)
        layout.addLayout(texts, 1)
        self.setMinimumHeight(appearance.px(40))  # two lines: the dialog does not jump with the verdict

    def show_verdict(self, verdict: Verdict, sentence: str, detail: str = "") -> None:
        self.verdict = verdict
        self.sentence.setText(sentence)
        self.detail.setText(detail)
        self.detail.setVisible(bool(detail))
        self.sentence.set_token("soft" if verdict in (Verdict.open, Verdict.checking) else "text")
        self.setAccessibleName(f"{sentence} {detail}".strip())
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
