"""Fields for numbers: typed, or changed with the arrow keys, or with the wheel while they have the focus."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QValidator, QWheelEvent
from PySide6.QtWidgets import QDoubleSpinBox, QSpinBox

OFF = "off"
_INSET = 8  # pixels; a stylesheet's padding does not reach the text of a spin box


class NumberBox(QSpinBox):
    """A whole number. `lowest_text` is shown instead of the lowest one, e.g. "off"."""

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
    """A decimal number. `off` is shown as the word, and the word can be typed."""

    _off: float | None = None  # Qt asks for texts before __init__ is through

    def __init__(
        self, low: float, high: float, step: float, value: float, decimals: int, *, off: float | None = None
    ) -> None:
        super().__init__()
        self._off = off
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

    def textFromValue(self, value: float) -> str:
        return OFF if value == self._off else super().textFromValue(value)

    def valueFromText(self, text: str) -> float:
        if self._off is not None and text.strip().lower() == OFF:
            return self._off
        return super().valueFromText(text)

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        word = text.strip().lower()
        if self._off is None or not word or not OFF.startswith(word):
            return super().validate(text, position)
        state = QValidator.State.Acceptable if word == OFF else QValidator.State.Intermediate
        return state, text, position
