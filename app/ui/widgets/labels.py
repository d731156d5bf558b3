"""Labels in the theme's colours and sizes, and the hairline."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from app.ui.theme import CONTROL, Appearance


class Label(QLabel):
    """Plain text, never markup, in one of the theme's colours; follows theme and zoom."""

    def __init__(
        self,
        appearance: Appearance,
        text: str = "",
        *,
        size: int = CONTROL,
        bold: bool = False,
        token: str = "text",
        wraps: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(text, parent)
        self._appearance = appearance
        self._size = size
        self._bold = bold
        self._token = token
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(wraps)
        appearance.changed.connect(self._restyle)
        self._restyle()

    def set_token(self, token: str) -> None:
        self._token = token
        self._restyle()

    def _restyle(self) -> None:
        self.setFont(self._appearance.font(self._size, bold=self._bold))
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.WindowText, self._appearance.theme.color(self._token))
        self.setPalette(palette)


class ElidedLabel(Label):
    """One line that gives way: what does not fit becomes an ellipsis and a tooltip."""

    def __init__(self, appearance: Appearance, text: str = "", *, size: int = CONTROL, bold: bool = False) -> None:
        super().__init__(appearance, text, size=size, bold=bold)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        text = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        self.setToolTip(self.text() if text != self.text() else "")
        painter = QPainter(self)
        painter.setPen(self.palette().color(QPalette.ColorRole.WindowText))
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)


class Hairline(QWidget):
    """One pixel of the colour `line`, across or down."""

    def __init__(self, appearance: Appearance, parent: QWidget | None = None, *, is_vertical: bool = False) -> None:
        super().__init__(parent)
        self._appearance = appearance
        if is_vertical:
            self.setFixedWidth(1)
        else:
            self.setFixedHeight(1)
        appearance.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), self._appearance.theme.color("line"))
