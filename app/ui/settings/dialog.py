"""The settings: appearance, sampling, speculation and the system prompt. Every change is in force at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QDialog,
    QHBoxLayout,
    QPlainTextEdit,
    QRadioButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.storage.settings import Settings
from app.ui.settings.form import Form
from app.ui.settings.sampling import SamplingSection
from app.ui.settings.speculation import SpeculationSection
from app.ui.theme import LABEL, Appearance, ThemeMode
from app.ui.widgets.buttons import Weight, push_button
from app.ui.widgets.labels import Label
from app.ui.widgets.numbers import NumberBox


class SettingsDialog(QDialog):
    """Writes into the settings it is given, and says `changed` after every change."""

    changed = Signal()

    def __init__(
        self,
        appearance: Appearance,
        settings: Settings,
        suggested: Mapping[str, float],
        parent: QWidget | None = None,
    ) -> None:
        """`suggested` is the sampling that the loaded target suggests."""
        super().__init__(parent)
        self._appearance = appearance
        self._settings = settings
        self.setWindowTitle("Settings")
        px = appearance.px
        height = px(640) if parent is None else min(px(640), parent.window().height() - px(40))
        self.resize(px(640), height)

        self.sampling = SamplingSection(appearance, settings, suggested)
        self.sampling.changed.connect(self.changed)
        self.speculation = SpeculationSection(appearance, settings)
        self.speculation.changed.connect(self._on_speculation_changed)
        page = QWidget()
        sections = QVBoxLayout(page)
        sections.setContentsMargins(px(24), px(20), px(24), px(20))
        sections.setSpacing(px(24))
        for section in (self._look(), self.sampling, self.speculation, self._system_prompt()):
            sections.addWidget(section)
        sections.addStretch(1)
        self.area = QScrollArea()
        self.area.setWidget(page)
        self.area.setWidgetResizable(True)
        self.area.setFrameShape(QScrollArea.Shape.NoFrame)

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
        layout.addWidget(self.area, 1)
        layout.addLayout(bottom)

    def set_suggested(self, suggested: Mapping[str, float]) -> None:
        """Another model was loaded while the dialog is open."""
        self.sampling.set_suggested(suggested)

    def _look(self) -> Form:
        form = Form(self._appearance)
        form.add_heading("Appearance")
        form.add_row("Theme", "System follows light and dark of the desktop.", self._theme_choice())
        form.add_row("Zoom", "The size of everything. Ctrl with + or − does the same.", self._zoom_box())
        return form

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

    def _system_prompt(self) -> Form:
        form = Form(self._appearance)
        form.add_heading("System prompt")
        form.add_hint("Told to the model before every chat, e.g. who it is and how it should answer. Empty: nothing.")
        field = QPlainTextEdit(self._settings.system_prompt)
        field.setProperty("field", "true")
        field.setAccessibleName("System prompt")
        field.setPlaceholderText("You are a helpful assistant.")
        field.setTabChangesFocus(True)
        field.setFixedHeight(self._appearance.px(96))
        field.textChanged.connect(lambda: self._set("system_prompt", field.toPlainText()))
        form.add_wide(field)
        return form

    def _set(self, name: str, value: object, *_: object) -> None:  # a click says "checked" as well
        setattr(self._settings, name, value)
        self.changed.emit()

    def _on_speculation_changed(self) -> None:
        self.sampling.refresh()
        self.changed.emit()
