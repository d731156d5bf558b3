"""A page of settings: headings, and rows of words on the left with a control on the right."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractSpinBox, QGridLayout, QLineEdit, QVBoxLayout, QWidget

from app.ui.theme import LABEL, TEXT, Appearance
from app.ui.widgets.labels import Label


class Form(QWidget):
    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.appearance = appearance
        px = appearance.px
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(px(16))
        self._grid.setVerticalSpacing(px(12))
        self._grid.setColumnStretch(0, 1)

    def add_heading(self, text: str) -> None:
        row = self._grid.rowCount()
        if row > 1:
            self._grid.setRowMinimumHeight(row, self.appearance.px(8))
        self.add_wide(Label(self.appearance, text, size=TEXT, bold=True))

    def add_hint(self, text: str) -> None:
        self.add_wide(Label(self.appearance, text, size=LABEL, token="soft", wraps=True))

    def add_wide(self, widget: QWidget) -> None:
        self._grid.addWidget(widget, self._grid.rowCount(), 0, 1, 3)

    def add_row(
        self,
        title: str,
        explanation: str,
        control: QWidget | None = None,
        hint: QWidget | None = None,
        aside: QWidget | None = None,
    ) -> None:
        """`hint` stands below the explanation, `aside` before the control. Without a control, it comes below."""
        px, row = self.appearance.px, self._grid.rowCount()
        texts = QVBoxLayout()
        texts.setSpacing(px(2))
        texts.addWidget(Label(self.appearance, title))
        texts.addWidget(Label(self.appearance, explanation, size=LABEL, token="soft", wraps=True))
        if hint is not None:
            texts.addWidget(hint)
        if control is None:
            self._grid.addLayout(texts, row, 0, 1, 3)
            return
        self._grid.addLayout(texts, row, 0)
        if aside is not None:
            self._grid.addWidget(aside, row, 1)
        self._grid.addWidget(control, row, 2, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        if isinstance(control, QAbstractSpinBox | QLineEdit):
            control.setFixedSize(px(120), px(32))
            control.setAccessibleName(title)
            control.setAccessibleDescription(explanation)
