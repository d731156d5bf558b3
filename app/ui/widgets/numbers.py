"""Fields for numbers: typed, or changed with the arrow keys, or with the wheel while they have the focus."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QDoubleSpinBox, QSpinBox

_INSET = 8  # pixels; a stylesheet's padding does not reach the text of a spin box


class NumberBox(QSpinBox):
    """A whole number. `lowest_text` is shown instead of the lowest one, e.g. "Off"."""

    def __init__(self, low: int, high: int, step: int, value: int, *, lowest_text: str = "") -> None:
        super().__init__()
        self.setRange(low, high)
        self.setSingleStep(step)
        self.setSpecialValueText(lowest_text)
        self.setValue(value)
        self.setGroupSeparatorShown(True)
        self.lineEdit().setTextMargins(_INSET, 0, 0, 0)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def wheelEvent(self, event: QWheelEvent) -> None:
        # Scrolling a page must not change the numbers that pass below the pointer.
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()


class DecimalBox(QDoubleSpinBox):
    def __init__(self, low: float, high: float, step: float, value: float, decimals: int) -> None:
        super().__init__()
        self.setDecimals(decimals)
        self.setRange(low, high)
        self.setSingleStep(step)
        self.setValue(value)
        self.lineEdit().setTextMargins(_INSET, 0, 0, 0)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()
