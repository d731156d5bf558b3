"""Three columns: one in the middle, one on each side. A side that does not fit becomes a drawer over the middle."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from app.ui.theme import Appearance
from app.ui.widgets.labels import Hairline

LEFT_WIDTH, RIGHT_WIDTH = 240, 320
DRAWER_BELOW = 900  # window width under which the right column is a drawer
MIDDLE_LEAST = 520  # the left column gives way rather than leave the middle less


class Columns(QWidget):
    """`wants_*` is what the user chose and is remembered; a drawer is open or closed apart from that."""

    arranged = Signal()

    def __init__(
        self, appearance: Appearance, left: QWidget, middle: QWidget, right: QWidget, drawer_over: QWidget
    ) -> None:
        super().__init__()
        self._appearance = appearance
        self._left, self._middle, self._right = left, middle, right
        self._drawer_over = drawer_over  # the part of the middle that the right drawer may cover
        self.wants_left = True
        self.wants_right = True
        self._left_drawer_open = False
        self._right_drawer_open = False
        middle.setParent(self)
        left.setParent(self)
        right.setParent(self)
        self._left_line = Hairline(appearance, self, is_vertical=True)
        self._right_line = Hairline(appearance, self, is_vertical=True)
        appearance.changed.connect(self.arrange)

    @property
    def is_left_shown(self) -> bool:
        return self.wants_left if self._fits_left() else self._left_drawer_open

    @property
    def is_right_shown(self) -> bool:
        return self.wants_right if self._fits_right() else self._right_drawer_open

    def toggle_left(self) -> None:
        if self._fits_left():
            self.wants_left = not self.wants_left
        else:
            self._left_drawer_open = not self._left_drawer_open
        self.arrange()

    def toggle_right(self) -> None:
        if self._fits_right():
            self.wants_right = not self.wants_right
        else:
            self._right_drawer_open = not self._right_drawer_open
        self.arrange()

    def close_left_drawer(self) -> None:
        self._left_drawer_open = False
        self.arrange()

    def arrange(self) -> None:
        """Place the columns for this width, theme and zoom."""
        px, width, height = self._appearance.px, self.width(), self.height()
        if self._fits_left():
            self._left_drawer_open = False
        if self._fits_right():
            self._right_drawer_open = False
        left_width = px(LEFT_WIDTH) if self.is_left_shown else 0
        right_width = px(RIGHT_WIDTH) if self.is_right_shown else 0
        start = left_width + 1 if left_width and self._fits_left() else 0
        end = width - right_width - 1 if right_width and self._fits_right() else width
        self._middle.setGeometry(start, 0, end - start, height)
        self._left.setGeometry(0, 0, left_width, height)
        self._left_line.setGeometry(left_width, 0, 1, height)
        self._place_right(right_width)
        for widget, is_shown in (
            (self._left, self.is_left_shown),
            (self._left_line, self.is_left_shown),
            (self._right, self.is_right_shown),
            (self._right_line, self.is_right_shown),
        ):
            widget.setVisible(is_shown)
            widget.raise_()
        self.arranged.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.arrange()

    def _place_right(self, right_width: int) -> None:
        area = QRect(0, 0, self.width(), self.height())
        if not self._fits_right():
            layout = self._middle.layout()
            if layout is not None:
                layout.activate()  # the geometry below must be that of the new width
            area = QRect(self._drawer_over.mapTo(self, QPoint(0, 0)), self._drawer_over.size())
        left = area.right() + 1 - right_width
        self._right.setGeometry(left, area.top(), right_width, area.height())
        self._right_line.setGeometry(left - 1, area.top(), 1, area.height())

    def _fits_right(self) -> bool:
        return self.width() >= self._appearance.px(DRAWER_BELOW)

    def _fits_left(self) -> bool:
        px = self._appearance.px
        right = px(RIGHT_WIDTH) if self._fits_right() and self.wants_right else 0
        return self.width() - right - px(LEFT_WIDTH) >= px(MIDDLE_LEAST)
