"""The panel's text: labels that follow theme and zoom, the state chip, and a name with its value."""

from __future__ import annotations

import html

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.ui.speculation.measures import DASH
from app.ui.theme import LABEL, Appearance


def explain(widget: QWidget, sentence: str) -> None:
    """Give a widget a tooltip, and a screen reader the same words."""
    # Only rich text is wrapped; plain tooltips become one line across the screen.
    widget.setToolTip(f"<p>{html.escape(sentence)}</p>" if sentence else "")
    widget.setAccessibleDescription(sentence)


class Words(QLabel):
    """Plain text in one of the theme's colours and sizes."""

    def __init__(
        self,
        appearance: Appearance,
        text: str = "",
        *,
        size: int = LABEL,
        token: str = "soft",
        bold: bool = False,
        tabular: bool = False,
        wrap: bool = False,
    ) -> None:
        super().__init__(text)
        self.appearance = appearance
        self._size, self._token, self._bold, self._tabular = size, token, bold, tabular
        self.setTextFormat(Qt.TextFormat.PlainText)  # model names and sentences may hold < and &
        self.setWordWrap(wrap)
        self._apply_appearance()
        appearance.changed.connect(self._apply_appearance)

    def set_token(self, token: str) -> None:
        self._token = token
        self._apply_appearance()

    def _apply_appearance(self) -> None:
        self.setFont(self.appearance.font(self._size, bold=self._bold, tabular=self._tabular))
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.WindowText, self.appearance.theme.color(self._token))
        self.setPalette(palette)


class Chip(Words):
    """A short word on a rounded ground."""

    def __init__(self, appearance: Appearance) -> None:
        self._ground = "surface"
        super().__init__(appearance, bold=True)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def set_colors(self, *, token: str, ground: str) -> None:
        self._ground = ground
        self.set_token(token)

    def _apply_appearance(self) -> None:
        super()._apply_appearance()
        px = self.appearance.px
        self.setContentsMargins(px(12), px(4), px(12), px(4))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.appearance.theme.color(self._ground))
        radius = self.height() / 2
        painter.drawRoundedRect(QRectF(self.rect()), radius, radius)
        painter.end()
        super().paintEvent(event)


class NamedValue(QWidget):
    """A name on the left and its value on the right, read as one by a screen reader, explained by a tooltip."""

    def __init__(
        self,
        appearance: Appearance,
        name: str,
        explanation: str = "",
        *,
        is_heading: bool = False,
        value_token: str = "text",
    ) -> None:
        super().__init__()
        self._name = name
        self._label = Words(appearance, name, bold=is_heading)
        self._value = Words(appearance, DASH, token=value_token, bold=value_token == "text", tabular=True)
        self._value.setObjectName(name)
        self._value.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self._label, 1)
        row.addWidget(self._value)
        explain(self, explanation)
        for label in (self._label, self._value):
            label.setAccessibleDescription(explanation)
        self.set_value(DASH)

    @property
    def value(self) -> str:
        return self._value.text()

    def set_value(self, text: str) -> None:
        self._value.setText(text)
        self._value.setAccessibleName(f"{self._name}: {'not known yet' if text == DASH else text}")
