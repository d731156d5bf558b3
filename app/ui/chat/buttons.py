"""The two small buttons of the transcript: a word that does something, and the way back to the end."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer
from PySide6.QtGui import QGuiApplication, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.ui.theme import LABEL, Appearance

_SAID_MS = 1500


class WordButton(QAbstractButton):
    """A word without a box. `quiet` ones show only under the pointer or with the focus, but are always reachable."""

    def __init__(self, word: str, name: str, appearance: Appearance, parent: QWidget, *, quiet: bool = False) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._word = word
        self._is_revealed = not quiet
        self._back = QTimer(self)
        self._back.setSingleShot(True)
        self._back.setInterval(_SAID_MS)
        self._back.timeout.connect(lambda: self.setText(self._word))
        self.setText(word)
        self.setAccessibleName(name)
        self.setFont(appearance.font(LABEL))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    @property
    def is_revealed(self) -> bool:
        return self._is_revealed

    def reveal(self, revealed: bool) -> None:
        self._is_revealed = revealed
        self.update()

    def say(self, word: str) -> None:
        """Show another word for a moment, to confirm."""
        self.setText(word)
        self._back.start()

    def sizeHint(self) -> QSize:
        widest = max(self.fontMetrics().horizontalAdvance(word) for word in (self._word, self.text(), "Copied"))
        return QSize(widest + self._appearance.px(12), self.fontMetrics().height() + self._appearance.px(8))

    def paintEvent(self, event: QPaintEvent) -> None:
        if not (self._is_revealed or self.hasFocus()):
            return
        theme = self._appearance.theme
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.hasFocus():
            painter.setPen(QPen(theme.color("accent"), 1))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        is_strong = self.underMouse() or self.hasFocus() or self.isChecked()
        painter.setPen(theme.color("accent" if self.isChecked() else "text" if is_strong else "soft"))
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, self.text())


class CopyButton(WordButton):
    """Puts `text()` of its owner on the clipboard, and says so."""

    def copy(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self.say("Copied")


class JumpButton(QAbstractButton):
    """A small round button with an arrow down."""

    def __init__(self, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self.setAccessibleName("Jump to latest")
        self.setToolTip("Jump to latest")
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.hide()

    def sizeHint(self) -> QSize:
        return QSize(self._appearance.px(34), self._appearance.px(34))

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = self._appearance.theme
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        is_strong = self.underMouse() or self.hasFocus()
        painter.setPen(QPen(theme.color("accent" if is_strong else "line"), 1))
        painter.setBrush(theme.color("surface"))
        painter.drawEllipse(QRectF(self.rect()).adjusted(1, 1, -1, -1))
        pen = QPen(theme.color("text"), self._appearance.px(2))
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        painter.setPen(pen)
        middle, arm = QPointF(self.rect().center()) + QPointF(0.5, 0.5), self.width() / 6
        tip = middle + QPointF(0, arm * 1.2)
        painter.drawLine(middle - QPointF(0, arm * 1.2), tip)
        painter.drawPolyline([tip + QPointF(-arm, -arm), tip, tip + QPointF(arm, -arm)])
