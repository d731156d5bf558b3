"""The settings: appearance, sampling and the system prompt. Every change is in force at once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import Signal
from PySide6.QtGui import QIntValidator
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QButtonGroup,
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QRadioButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.storage.settings import Settings
from app.ui.theme import LABEL, TEXT, Appearance, ThemeMode
from app.ui.widgets.buttons import Weight, push_button
from app.ui.widgets.labels import Label
from app.ui.widgets.numbers import DecimalBox, NumberBox

MAX_TOKENS = 1 << 20


@dataclass(frozen=True)
class Figure:
    """A setting that is a number. The explanation names the value at which it is off."""

    name: Literal["temperature", "top_k", "top_p", "min_p", "repeat_penalty"]
    title: str
    explanation: str
    low: float
    high: float
    step: float
    decimals: int = 2


FIGURES = (
    Figure("temperature", "Temperature", "How freely words are chosen. 0: always the likeliest.", 0, 5, 0.05),
    Figure("top_k", "Top-k", "Only the k likeliest tokens stay. 0: off.", 0, 1000, 1, decimals=0),
    Figure("top_p", "Top-p", "Only the likeliest tokens up to this share stay. 1: off.", 0.01, 1, 0.01),
    Figure("min_p", "Min-p", "Tokens below this share of the likeliest one go. 0: off.", 0, 1, 0.01),
    Figure("repeat_penalty", "Repeat penalty", "Holds back what was just written. 1: off.", 1, 2, 0.05),
)


class SettingsDialog(QDialog):
    """Writes into the settings it is given, and says `changed` after every change."""

    changed = Signal()

    def __init__(self, appearance: Appearance, settings: Settings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._settings = settings
        self.setWindowTitle("Settings")
        px = appearance.px
        self.resize(px(640), px(640))

        page = QWidget()
        self._grid = QGridLayout(page)
        self._grid.setContentsMargins(px(24), px(20), px(24), px(20))
        self._grid.setHorizontalSpacing(px(24))
        self._grid.setVerticalSpacing(px(12))
        self._grid.setColumnStretch(0, 1)
        self._add_heading("Appearance")
        self._add_row("Theme", "System follows light and dark of the desktop.", self._theme_choice())
        self._add_row("Zoom", "The size of everything. Ctrl with + or − does the same.", self._zoom_box())
        self._add_heading("Sampling")
        for figure in FIGURES:
            self._add_row(figure.title, figure.explanation, self._figure_box(figure))
        self._add_row("Seed", "The same seed repeats an answer. Empty: a fresh one.", self._seed_field())
        self._add_row("Longest answer", "In tokens. Off: as long as the context allows.", self._max_tokens_box())
        self._add_heading("System prompt")
        hint = "Told to the model before every chat, e.g. who it is and how it should answer. Empty: nothing."
        self._add_wide(Label(appearance, hint, size=LABEL, token="soft", wraps=True))
        self._add_wide(self._system_prompt_field())
        self._grid.setRowStretch(self._grid.rowCount(), 1)

        area = QScrollArea()
        area.setWidget(page)
        area.setWidgetResizable(True)
        area.setFrameShape(QScrollArea.Shape.NoFrame)
        close_button = push_button("Close", Weight.primary)
        close_button.clicked.connect(self.accept)
        bottom = QHBoxLayout()
        bottom.setContentsMargins(px(24), px(12), px(24), px(16))
        saved = Label(appearance, "Changes are in force and saved at once.", size=LABEL, token="faint")
        bottom.addWidget(saved)
        bottom.addStretch(1)
        bottom.addWidget(close_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(area, 1)
        layout.addLayout(bottom)

    # -- the controls -------------------------------------------------------------------------------------------------

    def _theme_choice(self) -> QWidget:
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(self._appearance.px(12))
        group = QButtonGroup(row)
        for mode in ThemeMode:
            button = QRadioButton(mode.value.capitalize())
            button.setAccessibleName(f"Theme: {mode.value}")
            button.setChecked(self._settings.theme == mode.value)
            button.clicked.connect(functools.partial(self._set, "theme", mode.value))
            group.addButton(button)
            layout.addWidget(button)
        return row

    def _zoom_box(self) -> NumberBox:
        box = NumberBox(75, 200, 5, round(self._settings.zoom * 100))
        box.setSuffix(" %")
        # Not while typing: "1" on the way to "125" would be a zoom of its own.
        box.setKeyboardTracking(False)
        box.valueChanged.connect(lambda value: self._set("zoom", value / 100))
        return box

    def _figure_box(self, figure: Figure) -> NumberBox | DecimalBox:
        value = getattr(self._settings, figure.name)
        box: NumberBox | DecimalBox
        if figure.decimals == 0:
            box = NumberBox(int(figure.low), int(figure.high), int(figure.step), int(value))
        else:
            box = DecimalBox(figure.low, figure.high, figure.step, value, figure.decimals)
        box.valueChanged.connect(lambda new: self._set(figure.name, new))
        return box

    def _seed_field(self) -> QLineEdit:
        field = QLineEdit()
        field.setPlaceholderText("fresh")
        field.setValidator(QIntValidator(0, (1 << 31) - 1, field))
        field.setText("" if self._settings.seed is None else str(self._settings.seed))
        field.textChanged.connect(lambda text: self._set("seed", int(text) if text.isdigit() else None))
        return field

    def _max_tokens_box(self) -> NumberBox:
        box = NumberBox(0, MAX_TOKENS, 64, self._settings.max_tokens or 0, lowest_text="Off")
        box.valueChanged.connect(lambda value: self._set("max_tokens", value or None))
        return box

    def _system_prompt_field(self) -> QPlainTextEdit:
        field = QPlainTextEdit(self._settings.system_prompt)
        field.setProperty("field", "true")
        field.setAccessibleName("System prompt")
        field.setPlaceholderText("You are a helpful assistant.")
        field.setTabChangesFocus(True)
        field.setFixedHeight(self._appearance.px(96))
        field.textChanged.connect(lambda: self._set("system_prompt", field.toPlainText()))
        return field

    def _set(self, name: str, value: object, *_: object) -> None:  # a click says "checked" as well
        setattr(self._settings, name, value)
        self.changed.emit()

    # -- the page -----------------------------------------------------------------------------------------------------

    def _add_heading(self, text: str) -> None:
        row = self._grid.rowCount()
        if row > 1:
            self._grid.setRowMinimumHeight(row, self._appearance.px(8))
        self._add_wide(Label(self._appearance, text, size=TEXT, bold=True))

    def _add_wide(self, widget: QWidget) -> None:
        self._grid.addWidget(widget, self._grid.rowCount(), 0, 1, 2)

    def _add_row(self, title: str, explanation: str, control: QWidget) -> None:
        px, row = self._appearance.px, self._grid.rowCount()
        texts = QVBoxLayout()
        texts.setSpacing(px(2))
        texts.addWidget(Label(self._appearance, title))
        texts.addWidget(Label(self._appearance, explanation, size=LABEL, token="soft", wraps=True))
        self._grid.addLayout(texts, row, 0)
        self._grid.addWidget(control, row, 1)
        if isinstance(control, QAbstractSpinBox | QLineEdit):
            control.setFixedSize(px(120), px(32))
            control.setAccessibleName(title)
            control.setAccessibleDescription(explanation)
