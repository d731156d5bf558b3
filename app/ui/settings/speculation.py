"""The speculation part of the settings: how long drafts are, and by which rule they are verified."""

from __future__ import annotations

import functools
from typing import Literal

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QRadioButton, QVBoxLayout, QWidget

from app.engine.protocol import MAX_DRAFT_LENGTH
from app.storage.settings import Settings
from app.ui.settings.form import Form
from app.ui.theme import LABEL, Appearance
from app.ui.widgets.labels import Label
from app.ui.widgets.numbers import NumberBox

Rule = Literal["rejection", "coupled"]

RULES: tuple[tuple[Rule, str, str], ...] = (
    (
        "rejection",
        "Rejection (fastest)",
        "Keeps as many draft tokens as can be kept without changing how the target's answers are distributed.",
    ),
    (
        "coupled",
        "Coupled (same seed, same answer)",
        "The same seed gives the same answer with any draft, or with none. Somewhat fewer draft tokens are accepted.",
    ),
)


class SpeculationSection(Form):
    changed = Signal()

    def __init__(self, appearance: Appearance, settings: Settings) -> None:
        super().__init__(appearance)
        self._settings = settings
        self.length = NumberBox(0, MAX_DRAFT_LENGTH, 1, settings.draft_length or 0, lowest_text="automatic")
        self.length.valueChanged.connect(self._on_length_changed)
        self.rules = {name: QRadioButton(title) for name, title, _ in RULES}
        self._group = QButtonGroup(self)
        self.add_heading("Speculation")
        self.add_row("Draft length", "Automatic: learned for the pair and this machine. Or fixed.", self.length)
        self.add_row("Verify rule", "How the target decides on draft tokens. The answer is exact with both.")
        for name, title, explanation in RULES:
            button = self.rules[name]
            button.setAccessibleName(f"Verify rule: {title}")
            button.setAccessibleDescription(explanation)
            button.setChecked(settings.verify == name)
            button.clicked.connect(functools.partial(self._on_rule_chosen, name))
            self._group.addButton(button)
            self.add_wide(self._explained(button, explanation))

    def _explained(self, button: QRadioButton, explanation: str) -> QWidget:
        px = self.appearance.px
        words = Label(self.appearance, explanation, size=LABEL, token="soft", wraps=True)
        words.setContentsMargins(px(24), 0, 0, 0)  # below the button's title, not below its ring
        pair = QWidget()
        layout = QVBoxLayout(pair)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(px(2))
        layout.addWidget(button)
        layout.addWidget(words)
        return pair

    def _on_length_changed(self, length: int) -> None:
        self._settings.draft_length = length or None
        self.changed.emit()

    def _on_rule_chosen(self, rule: Rule, *_: object) -> None:  # a click says "checked" as well
        self._settings.verify = rule
        self.changed.emit()
