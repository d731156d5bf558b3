"""Choosing a pair: a target file, how to draft for it, and at once whether the two fit."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QRadioButton,
    QVBoxLayout,
    QWidget,
)

from app.chat import ModelPair
from app.engine.protocol import DrafterChoice, PairChecked
from app.ui import wording
from app.ui.chats import PairChoice
from app.ui.library.file_field import FileField
from app.ui.library.verdict import Verdict, VerdictLine
from app.ui.theme import HINT, LABEL, TEXT, Appearance
from app.ui.widgets.buttons import Weight, push_button
from app.ui.widgets.labels import Hairline, Label
from app.ui.widgets.numbers import NumberBox

TYPING_MS = 250  # a path is checked when the typing pauses


class DraftWay(StrEnum):
    auto = "auto"
    model = "model"
    lookup = "lookup"
    none = "none"


_WAY_TEXTS = {
    DraftWay.auto: "Draft model and lookup (automatic)",
    DraftWay.model: "Draft model only",
    DraftWay.lookup: "Lookup only",
    DraftWay.none: "None",
}
_WAY_TIPS = {
    DraftWay.auto: "Each round takes what promises more. Without a draft file this is lookup.",
    DraftWay.model: "A small model runs ahead of the target.",
    DraftWay.lookup: "What followed the last words earlier in the text: costs nothing, helps with repetition.",
    DraftWay.none: "The target writes every token by itself.",
}
_WITH_MODEL = (DraftWay.auto, DraftWay.model)


class Picker(QDialog):
    """Asks for a verdict on every change by `check_requested`, and takes it by `show_verdict`."""

    check_requested = Signal(object)  # ModelPair
    chosen = Signal(object)  # PairChoice

    def __init__(
        self,
        appearance: Appearance,
        *,
        starter: Path | None,
        recent: Sequence[str],
        choice: PairChoice | None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._asked: ModelPair | None = None
        self.setWindowTitle("Models")
        self.setMinimumWidth(appearance.px(560))

        self.target = FileField(appearance, "Target file", starter=starter, recent=recent)
        self.draft = FileField(appearance, "Draft file", starter=starter, recent=recent)
        self.target_facts = Label(appearance, size=LABEL, token="faint", wraps=True)
        self.draft_facts = Label(appearance, size=LABEL, token="faint", wraps=True)
        self.ways = {way: QRadioButton(text) for way, text in _WAY_TEXTS.items()}
        self._group = QButtonGroup(self)
        for way, button in self.ways.items():
            button.setToolTip(_WAY_TIPS[way])
            self._group.addButton(button)
        self.verdict = VerdictLine(appearance)
        self.context = NumberBox(256, 1 << 20, 256, 4096)
        self.context.setSuffix(" tokens")
        self.context.setAccessibleName("Context length in tokens")
        self.without_button = push_button("Load without this draft")
        self.cancel_button = push_button("Cancel")
        self.load_button = push_button("Load", Weight.primary)
        self.load_button.setDefault(True)
        self._build()

        self._show_choice(choice, starter)
        self._typing = QTimer(self, singleShot=True, interval=TYPING_MS)
        self._typing.timeout.connect(self._check)
        self.target.changed.connect(self._on_changed)
        self.draft.changed.connect(self._on_draft_changed)
        self._group.buttonClicked.connect(self._on_changed)
        self.load_button.clicked.connect(lambda: self._choose(self.way))
        self.without_button.clicked.connect(lambda: self._choose(DraftWay.lookup))
        self.cancel_button.clicked.connect(self.reject)

    @property
    def way(self) -> DraftWay:
        return next(way for way, button in self.ways.items() if button.isChecked())

    def pair(self) -> ModelPair | None:
        """The pair as it stands in the fields; None while a needed file is not named."""
        target, draft = self.target.file(), self.draft.file()
        if target is None or (self.way is DraftWay.model and draft is None):
            return None
        return ModelPair(target, draft if self.way in _WITH_MODEL else None)

    def begin(self) -> None:
        """Ask for the first verdict."""
        self._check()

    def show_verdict(self, event: PairChecked) -> None:
        """Take a verdict, unless the fields have moved on since it was asked for."""
        asked = self._asked
        if asked is None or (event.target, event.draft) != _names(asked):
            return
        self.target_facts.setText(wording.model_facts(event.target_info) if event.target_info else "")
        self.draft_facts.setText(wording.model_facts(event.draft_info) if event.draft_info else "")
        self.draft_facts.setVisible(bool(self.draft_facts.text()))
        can_read_target = event.target_info is not None
        if event.target_info is not None and event.target_info.trained_context:
            self.context.setToolTip(f"This model was trained for {event.target_info.trained_context:,} tokens.")
        if event.fits and event.translates:
            self.verdict.show_verdict(Verdict.translates, "Fits, other vocabulary.", event.reason)
        else:
            self.verdict.show_verdict(Verdict.fits if event.fits else Verdict.unfit, event.reason)
        self.load_button.setEnabled(can_read_target and event.fits)
        self.without_button.setVisible(can_read_target and not event.fits and asked.draft is not None)
        self._make_room()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        px, appearance = self._appearance.px, self._appearance
        layout = self._column = QVBoxLayout(self)
        layout.setContentsMargins(px(24), px(20), px(24), px(20))
        layout.setSpacing(px(8))
        layout.addWidget(Label(appearance, "Target", size=TEXT, bold=True))
        hint = "The model that answers. Choose a GGUF file or drop one here."
        layout.addWidget(Label(appearance, hint, size=LABEL, token="soft", wraps=True))
        layout.addWidget(self.target)
        layout.addWidget(self.target_facts)
        layout.addSpacing(px(8))
        layout.addWidget(Label(appearance, "Draft", size=TEXT, bold=True))
        hint = "Runs ahead of the target, which checks it. The answer stays exactly the target's, only sooner."
        layout.addWidget(Label(appearance, hint, size=LABEL, token="soft", wraps=True))
        layout.addWidget(self.draft)
        layout.addWidget(self.draft_facts)
        ways = QGridLayout()
        ways.setHorizontalSpacing(px(24))
        ways.setVerticalSpacing(px(8))
        ways.setColumnStretch(1, 1)
        for i, way in enumerate(DraftWay):
            ways.addWidget(self.ways[way], i % 2, i // 2)
        layout.addLayout(ways)
        layout.addSpacing(px(4))
        layout.addWidget(self.verdict)
        layout.addSpacing(px(8))
        layout.addWidget(Hairline(appearance))
        layout.addSpacing(px(8))
        numbers = QHBoxLayout()
        numbers.setSpacing(px(8))
        numbers.addWidget(Label(appearance, "Context", token="soft"))
        numbers.addWidget(self.context)
        numbers.addStretch(1)
        layout.addLayout(numbers)
        note = "What a draft is worth is learned while chatting, so its length is automatic; Settings can fix it."
        layout.addWidget(Label(appearance, note, size=HINT, token="faint", wraps=True))
        layout.addStretch(1)
        layout.addSpacing(px(12))
        buttons = QHBoxLayout()
        buttons.setSpacing(px(8))
        buttons.addWidget(self.without_button)
        buttons.addStretch(1)
        buttons.addWidget(self.cancel_button)
        buttons.addWidget(self.load_button)
        layout.addLayout(buttons)
        self.draft_facts.hide()
        self.without_button.hide()

    def _make_room(self) -> None:
        """A dialog does not grow by itself for text that wraps."""
        self._column.activate()
        self.resize(self.width(), max(self.height(), self._column.totalHeightForWidth(self.width())))

    def _show_choice(self, choice: PairChoice | None, starter: Path | None) -> None:
        if choice is None:
            self.target.set_file(starter)
            self.ways[DraftWay.auto].setChecked(True)
            return
        self.target.set_file(choice.target)
        self.draft.set_file(choice.draft)
        self.ways[DraftWay(choice.drafter)].setChecked(True)
        self.context.setValue(choice.context)

    def _on_draft_changed(self) -> None:
        if self.draft.file() is not None and self.way not in _WITH_MODEL:
            self.ways[DraftWay.auto].setChecked(True)  # naming a draft means wanting it
        self._on_changed()

    def _on_changed(self) -> None:
        """From here on the verdict shown would be about something else."""
        self._asked = None
        self.load_button.setEnabled(False)
        self.without_button.hide()
        if self.pair() is not None:
            self.verdict.show_verdict(Verdict.checking, "Checking…")
        self._typing.start()

    def _check(self) -> None:
        pair = self.pair()
        self._asked = pair
        self.load_button.setEnabled(False)
        self.without_button.hide()
        if pair is None:
            missing = "Choose a target file." if self.target.file() is None else "Choose a draft file."
            self.target_facts.setText("" if self.target.file() is None else self.target_facts.text())
            self.verdict.show_verdict(Verdict.open, missing)
            return
        self.verdict.show_verdict(Verdict.checking, "Checking…")
        self.check_requested.emit(pair)

    def _choose(self, way: DraftWay) -> None:
        target = self.target.file()
        if target is None:
            return
        drafter: DrafterChoice = way.value
        draft = self.draft.file() if way in _WITH_MODEL else None
        self.chosen.emit(PairChoice(target, draft, drafter, self.context.value()))
        self.accept()


def _names(pair: ModelPair) -> tuple[str, str | None]:
    return str(pair.target), None if pair.draft is None else str(pair.draft)
