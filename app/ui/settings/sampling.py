"""The sampling part of the settings: what the user chose, what the model suggests, and the samplers few people need."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtGui import QIntValidator
from PySide6.QtWidgets import QLineEdit, QPushButton, QVBoxLayout, QWidget

from app.engine.protocol import SAMPLERS, SamplingParams
from app.storage.settings import Settings
from app.ui.sampling import bias_of, bias_text, complete, sampling_of
from app.ui.settings.figures import COMMON, MORE, Figure
from app.ui.settings.form import Form
from app.ui.settings.order import OrderList
from app.ui.theme import LABEL, Appearance
from app.ui.widgets.buttons import FoldButton, Weight, push_button
from app.ui.widgets.labels import Label
from app.ui.widgets.numbers import OFF, DecimalBox, NumberBox

MAX_TOKENS = 1 << 20


class SamplingSection(QWidget):
    """Writes into the settings it is given. A figure that was never changed stays None there and follows the model."""

    changed = Signal()

    def __init__(self, appearance: Appearance, settings: Settings, suggested: Mapping[str, float]) -> None:
        super().__init__()
        self._appearance = appearance
        self._settings = settings
        self._suggested = dict(suggested)
        self.rows = {figure.name: _FigureRow(appearance, figure, settings) for figure in (*COMMON, *MORE)}
        self.note = Label(appearance, size=LABEL, wraps=True)  # what the samplers cost the draft
        self.more_button = FoldButton(appearance)
        self.more_button.is_folded = True
        self.order = OrderList(appearance, complete(settings.order or SAMPLERS))
        self.bias_problem = Label(appearance, size=LABEL, token="error", wraps=True)
        self.bias_problem.hide()
        self._more = self._build_more()
        self._more.hide()

        common = Form(appearance)
        common.add_heading("Sampling")
        for figure in COMMON:
            self._add(common, figure)
        common.add_row("Seed", "The same seed repeats an answer. Empty: a fresh one.", self._seed_field())
        common.add_row("Longest answer", "In tokens. Off: as long as the context allows.", self._max_tokens_box())
        common.add_wide(self.note)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(appearance.px(12))
        layout.addWidget(common)
        layout.addWidget(self.more_button)
        layout.addWidget(self._more)

        self.more_button.clicked.connect(self._on_folded)
        self.order.changed.connect(self._on_order_changed)
        for row in self.rows.values():
            row.changed.connect(self._on_figure_changed)
        self._show()

    def set_suggested(self, suggested: Mapping[str, float]) -> None:
        """Another model was loaded."""
        if dict(suggested) != self._suggested:
            self._suggested = dict(suggested)
            self._show()

    def refresh(self) -> None:
        """The verify rule was changed elsewhere in the dialog."""
        self._show()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _build_more(self) -> Form:
        more = Form(self._appearance)
        for figure in MORE:
            self._add(more, figure)
        more.add_row("Order of the samplers", "They work from top to bottom. Drag a name, or move it.")
        more.add_wide(self.order)
        more.add_row("Logit bias", "Makes tokens likelier or rarer: token id = bias, e.g. 198=-5, 2=1.5. Empty: off.")
        more.add_wide(self._bias_field())
        more.add_wide(self.bias_problem)
        return more

    def _add(self, form: Form, figure: Figure) -> None:
        row = self.rows[figure.name]
        form.add_row(figure.title, figure.explanation, row.box, row.hint, row.reset_button)

    def _seed_field(self) -> QLineEdit:
        field = QLineEdit()
        field.setPlaceholderText("fresh")
        field.setValidator(QIntValidator(0, (1 << 31) - 1, field))
        field.setText("" if self._settings.seed is None else str(self._settings.seed))
        field.textChanged.connect(lambda text: self._set("seed", int(text) if text.isdigit() else None))
        return field

    def _max_tokens_box(self) -> NumberBox:
        box = NumberBox(0, MAX_TOKENS, 64, self._settings.max_tokens or 0, lowest_text=OFF)
        box.valueChanged.connect(lambda value: self._set("max_tokens", value or None))
        return box

    def _bias_field(self) -> QLineEdit:
        field = QLineEdit(bias_text(self._settings.logit_bias or []))
        field.setAccessibleName("Logit bias")
        field.setPlaceholderText(OFF)
        field.textChanged.connect(self._on_bias_changed)
        return field

    def _set(self, name: str, value: object) -> None:
        setattr(self._settings, name, value)
        self._show()
        self.changed.emit()

    def _show(self) -> None:
        params = sampling_of(self._settings, self._suggested)
        for name, row in self.rows.items():
            row.show_value(getattr(params, name), self._suggested.get(name))
        used = sum(not row.is_off for row in self.rows.values() if row.figure in MORE and row.figure.off is not None)
        used -= not self.rows["repeat_last_n"].is_off  # a size for others, not a sampler
        used += bool(params.logit_bias)
        self.more_button.setText(f"More samplers ({used} in use)" if used else "More samplers")
        self.more_button.setAccessibleName(
            f"{self.more_button.text()}, {'folded' if self.more_button.is_folded else 'unfolded'}"
        )
        self.more_button.updateGeometry()
        self.more_button.update()
        note = _note(params) if self._settings.verify == "rejection" else None
        self.note.setText(note or "")
        self.note.setVisible(note is not None)

    def _on_figure_changed(self) -> None:
        self._show()
        self.changed.emit()

    def _on_folded(self) -> None:
        self.more_button.is_folded = not self.more_button.is_folded
        self._more.setVisible(not self.more_button.is_folded)
        self._show()

    def _on_order_changed(self, order: list[str]) -> None:
        self._set("order", None if tuple(order) == SAMPLERS else order)

    def _on_bias_changed(self, text: str) -> None:
        """What cannot be read yet changes nothing and says why."""
        try:
            bias = bias_of(text)
        except ValueError as error:
            self.bias_problem.setText(str(error))
            self.bias_problem.show()
            return
        self.bias_problem.hide()
        self._set("logit_bias", bias or None)


class _FigureRow(QWidget):
    """The controls of one figure: its box, what the model suggests, and the way back from a choice."""

    changed = Signal()

    def __init__(self, appearance: Appearance, figure: Figure, settings: Settings) -> None:
        super().__init__()
        self.figure = figure
        self._settings = settings
        self.box = _box(figure)
        self.box.valueChanged.connect(self._on_chosen)
        self.hint = Label(appearance, size=LABEL, token="faint", wraps=True)
        self.reset_button: QPushButton = push_button("Reset", Weight.link)
        self.reset_button.setAccessibleName(f"Reset {figure.title}")
        policy = self.reset_button.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.reset_button.setSizePolicy(policy)
        self.reset_button.clicked.connect(self._on_reset)

    @property
    def is_off(self) -> bool:
        return self.figure.off is not None and self.box.value() == self.figure.off

    def show_value(self, value: float, suggested: float | None) -> None:
        if value != self.box.value():  # else it may be in the middle of being typed
            with QSignalBlocker(self.box):
                if isinstance(self.box, NumberBox):
                    self.box.setValue(int(value))
                else:
                    self.box.setValue(value)
        self.hint.setText("" if suggested is None else f"Suggested by the model: {self._text(suggested)}")
        self.hint.setVisible(suggested is not None)
        self.reset_button.setVisible(getattr(self._settings, self.figure.name) is not None)
        self.reset_button.setToolTip(
            "Take the usual value" if suggested is None else f"Take what the model suggests: {self._text(suggested)}"
        )

    def _text(self, value: float) -> str:
        return OFF if value == self.figure.off else f"{value:.4g}"

    def _on_chosen(self, value: float) -> None:
        setattr(self._settings, self.figure.name, value)
        self.changed.emit()

    def _on_reset(self) -> None:
        setattr(self._settings, self.figure.name, None)
        self.changed.emit()


def _box(figure: Figure) -> NumberBox | DecimalBox:
    if figure.decimals == 0:
        lowest = OFF if figure.off is not None else ""
        return NumberBox(int(figure.low), int(figure.high), int(figure.step), int(figure.low), lowest_text=lowest)
    return DecimalBox(figure.low, figure.high, figure.step, figure.low, figure.decimals, off=figure.off)


def _note(params: SamplingParams) -> str | None:
    """The engine's sentence on samplers that change how drafts are verified."""
    if not params.mirostat and not params.xtc_probability:
        return None
    from app.engine.sampling import comparison_note  # noqa: PLC0415 (numpy, which few people's dialog needs)

    return comparison_note(params)
