"""The window's own buttons: an icon alone, an icon with a word, a chevron that folds, three weights of push button."""

from __future__ import annotations

from enum import StrEnum

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QEnterEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QPushButton, QSizePolicy, QWidget

from app.ui.theme import LABEL, Appearance
from app.ui.widgets.icons import Icon, draw_icon


class Weight(StrEnum):
    """How much a push button asks for attention; `style.py` gives each its look."""

    primary = "primary"
    plain = "plain"
    link = "link"


def push_button(text: str, weight: Weight = Weight.plain, parent: QWidget | None = None) -> QPushButton:
    button = QPushButton(text, parent)
    button.setProperty("weight", weight.value)
    button.setCursor(Qt.CursorShape.PointingHandCursor)
    return button


class IconButton(QAbstractButton):
    """An icon, and a word beside it if `shows_text`. The text is the accessible name in either case."""

    def __init__(
        self, appearance: Appearance, icon: Icon, text: str, *, shows_text: bool = False, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._icon = icon
        self._shows_text = shows_text
        self.setText(text)
        self.setAccessibleName(text)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        if not shows_text:
            self.setToolTip(text)
        appearance.changed.connect(self.updateGeometry)
        appearance.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        px = self._appearance.px
        width = px(32)
        if self._shows_text:
            width += px(4) + round(self._appearance.metrics().horizontalAdvance(self.text()))
        return QSize(width, px(32))

    def enterEvent(self, event: QEnterEvent) -> None:
        self.update()
        super().enterEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self._appearance.theme, self._appearance.px
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(theme.color("accent") if self.hasFocus() else Qt.PenStyle.NoPen)
        if self.isChecked() or self.underMouse() or self.isDown():
            painter.setBrush(theme.color("text", 0.09 if self.underMouse() else 0.05))
        painter.drawRoundedRect(rect, px(8), px(8))
        lit = self.isChecked() or self.underMouse()
        color = theme.color(("accent" if self.isChecked() else "text") if lit else "soft")
        square = QRectF(px(7), (self.height() - px(18)) / 2, px(18), px(18))
        draw_icon(painter, self._icon, square, color)
        if self._shows_text:
            painter.setPen(color)
            painter.setFont(self._appearance.font())
            room = rect.adjusted(px(32), 0, 0, 0)
            painter.drawText(room, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, self.text())


class FoldButton(QAbstractButton):
    """A chevron and a title."""

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self.is_folded = False
        self.setFont(appearance.font(LABEL))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def sizeHint(self) -> QSize:
        px = self._appearance.px
        return QSize(self.fontMetrics().horizontalAdvance(self.text()) + px(28), px(28))

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
