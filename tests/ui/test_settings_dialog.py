"""The settings dialog: choices and suggestions, what is off, the samplers few people need, and small windows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractSpinBox, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.engine.protocol import SAMPLERS, VerifyRule
from app.storage.settings import Settings
from app.ui.chats import PairChoice, SessionState
from app.ui.settings.dialog import SettingsDialog
from app.ui.theme import Appearance, ThemeMode
from tests.support.opened_window import STARTER, Opened, say

SUGGESTED = {"temperature": 0.6, "top_k": 20.0, "top_p": 1.0}


class Shown:
    """A dialog, the settings it writes into, and how often it said that they changed."""

    def __init__(self, qtbot: QtBot, settings: Settings, suggested: dict[str, float] | None = None) -> None:
        self.settings = settings
        self.dialog = SettingsDialog(Appearance(ThemeMode.light), settings, suggested or {})
        qtbot.addWidget(self.dialog)
        self.changes = 0
        self.dialog.changed.connect(self._count)
        self.dialog.show()

    def _count(self) -> None:
        self.changes += 1

    def row(self, name: str):
        return self.dialog.sampling.rows[name]

    def named(self, name: str) -> QWidget:
        (widget,) = [w for w in self.dialog.findChildren(QWidget) if w.accessibleName() == name]
        return widget


@pytest.fixture
def shown(qtbot: QtBot) -> Shown:
    return Shown(qtbot, Settings(min_p=0.1), SUGGESTED)


def test_a_figure_never_changed_shows_what_the_model_suggests(shown: Shown) -> None:
    row = shown.row("temperature")
    assert row.box.value() == 0.6
    assert row.hint.text() == "Suggested by the model: 0.6"
    assert not row.reset_button.isVisible()
    assert shown.row("top_k").box.value() == 20
    assert shown.row("top_p").hint.text() == "Suggested by the model: off"
    assert not shown.row("min_p").hint.isVisible()
    assert shown.settings == Settings(min_p=0.1), "to be shown is not to be chosen"
    assert shown.changes == 0


def test_a_change_is_a_choice_until_it_is_reset(shown: Shown) -> None:
    row = shown.row("temperature")
    row.box.setValue(0.6 + 0.05)
    row.box.setValue(0.6)  # the suggestion's own value, but chosen
    assert shown.settings.temperature == 0.6
    assert shown.changes == 2
    assert row.reset_button.isVisible()
    shown.dialog.set_suggested({"temperature": 0.9})
    assert row.box.value() == 0.6
    assert row.hint.text() == "Suggested by the model: 0.9"
    assert shown.row("top_k").box.value() == 40
    row.reset_button.click()
    assert shown.settings.temperature is None
    assert row.box.value() == 0.9
    shown.row("min_p").reset_button.click()
    assert shown.row("min_p").box.value() == 0.05


def test_what_is_off_says_so_and_can_be_typed(qtbot: QtBot, shown: Shown) -> None:
    for name in ("top_p", "typical_p", "frequency_penalty", "dry_multiplier", "mirostat", "xtc_probability"):
        assert shown.row(name).box.text() == "off", name
    box = shown.row("min_p").box
    assert box.text() == "0.10"
    box.setFocus()
    box.selectAll()
    qtbot.keyClicks(box, "off")
    assert shown.settings.min_p == 0.0
    box.selectAll()
    qtbot.keyClicks(box, "0.25")
    assert shown.settings.min_p == 0.25
    box.selectAll()
    qtbot.keyClicks(box, "of")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    assert shown.settings.min_p == 0.25, "half a word changes nothing"


def test_more_samplers_are_folded_and_counted(shown: Shown) -> None:
    button = shown.dialog.sampling.more_button
    box = shown.row("frequency_penalty").box
    assert button.text() == "More samplers"
    assert not box.isVisible()
    button.click()
    assert box.isVisible()
    box.setValue(0.5)
    shown.row("dry_multiplier").box.setValue(0.8)
    shown.named("Logit bias").setText("198=-5")
    assert button.text() == "More samplers (3 in use)"
    assert shown.settings.frequency_penalty == 0.5
    button.click()
    assert not box.isVisible()
    assert button.accessibleName() == "More samplers (3 in use), folded"


@pytest.mark.parametrize(("name", "value", "word"), [("xtc_probability", 0.5, "XTC"), ("mirostat", 2, "Mirostat")])
def test_samplers_without_a_fixed_distribution_are_explained(shown: Shown, name: str, value: float, word: str) -> None:
    note = shown.dialog.sampling.note
    assert not note.isVisible()
    shown.row(name).box.setValue(value)
    assert note.isVisible()
    assert note.text().startswith(word)
    shown.dialog.speculation.rules["coupled"].click()
    assert not note.isVisible(), "that rule compares in any case"
    shown.dialog.speculation.rules["rejection"].click()
    assert note.isVisible()
    shown.row(name).reset_button.click()
    assert not note.isVisible()


def test_a_bias_that_cannot_be_read_is_said_and_changes_nothing(shown: Shown) -> None:
    shown.dialog.sampling.more_button.click()
    field = shown.named("Logit bias")
    field.setText("198=-5")
    assert shown.settings.logit_bias == [(198, -5.0)]
    field.setText("198=-5, two=1")
    assert shown.dialog.sampling.bias_problem.isVisible()
    assert "“two=1”" in shown.dialog.sampling.bias_problem.text()
    assert shown.settings.logit_bias == [(198, -5.0)]
    field.clear()
    assert not shown.dialog.sampling.bias_problem.isVisible()
    assert shown.settings.logit_bias is None


def test_the_order_is_changed_by_button_key_and_mouse(qtbot: QtBot, shown: Shown) -> None:
    order = shown.dialog.sampling.order
    shown.dialog.sampling.more_button.click()
    assert order.order() == list(SAMPLERS)
    assert not order.up_button.isEnabled()
    order.down_button.click()
    assert shown.settings.order == ["dry", "penalties", *SAMPLERS[2:]]
    order.list.setFocus()
    qtbot.keyClick(order.list, Qt.Key.Key_Down, Qt.KeyboardModifier.AltModifier)
    assert shown.settings.order == ["dry", "top_n_sigma", "penalties", *SAMPLERS[3:]]
    qtbot.keyClick(order.list, Qt.Key.Key_Up, Qt.KeyboardModifier.AltModifier)
    root = QModelIndex()
    assert order.list.model().moveRows(root, 1, 1, root, 0)  # what a drop does
    assert shown.settings.order is None, "the usual order is no choice"
    order.list.setCurrentRow(len(SAMPLERS) - 1)
    assert not order.down_button.isEnabled()
    order.up_button.click()
    assert shown.settings.order == [*SAMPLERS[:-2], "temperature", "xtc"]
    order.usual_button.click()
    assert shown.settings.order is None
    assert order.order() == list(SAMPLERS)


def test_an_order_of_another_version_is_completed(qtbot: QtBot) -> None:
    shown = Shown(qtbot, Settings(order=["temperature", "nonsense"]))
    assert shown.dialog.sampling.order.order()[0] == "temperature"
    assert sorted(shown.dialog.sampling.order.order()) == sorted(SAMPLERS)


def test_speculation_is_set_here(shown: Shown) -> None:
    section = shown.dialog.speculation
    assert section.length.text() == "automatic"
    section.length.setValue(4)
    section.rules["coupled"].click()
    assert (shown.settings.draft_length, shown.settings.verify) == (4, "coupled")
    section.length.setValue(0)
    section.rules["rejection"].click()
    assert (shown.settings.draft_length, shown.settings.verify) == (None, "rejection")
    assert "same answer" in section.rules["coupled"].accessibleName()
    assert section.rules["coupled"].accessibleDescription()


def test_a_small_window_scrolls_up_and_down_only(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window()
    opened.window.resize(900, 600)
    opened.window.open_settings()
    dialog = opened.window._settings_dialog
    assert dialog is not None
    dialog.sampling.more_button.click()
    qtbot.wait(20)
    assert dialog.height() <= 600
    assert dialog.area.verticalScrollBar().maximum() > 0
    assert dialog.area.horizontalScrollBar().maximum() == 0
    controls = [*dialog.sampling.rows.values()]
    page = dialog.area.widget()
    for row in controls:
        place = row.box.mapTo(page, row.box.rect().bottomRight())
        assert 0 <= place.x() < page.width(), row.figure.name
        assert row.box.width() >= row.box.minimumSizeHint().width(), row.figure.name
    fields = [w for w in dialog.findChildren(QWidget) if isinstance(w, QAbstractButton | QAbstractSpinBox | QLineEdit)]
    own = [w for w in fields if not (isinstance(w, QLineEdit) and isinstance(w.parentWidget(), QAbstractSpinBox))]
    assert [w for w in own if not (w.accessibleName() or (isinstance(w, QAbstractButton) and w.text()))] == []
    dialog.close()
    assert opened.window._settings_dialog is None


def test_what_is_chosen_and_suggested_reaches_the_engine(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window(answer="Fine.")
    opened.engine.suggested = SUGGESTED
    opened.window.open_settings()
    dialog = opened.window._settings_dialog
    assert dialog is not None
    assert dialog.sampling.rows["temperature"].box.value() == 0.7
    opened.session.choose(PairChoice(STARTER, None, "auto", 1024))
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle and len(opened.engine.loads) == 2)
    assert dialog.sampling.rows["temperature"].box.value() == 0.6, "the dialog follows the model"
    dialog.sampling.rows["top_k"].box.setValue(5)
    dialog.sampling.rows["xtc_probability"].box.setValue(0.25)
    dialog.speculation.length.setValue(6)
    dialog.speculation.rules["coupled"].click()
    assert "6 draft tokens a round" in opened.window.panel._pacing.text()
    dialog.close()
    say(qtbot, opened, "Go")
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle and bool(opened.engine.generations))
    request = opened.engine.generations[0].request
    assert (request.sampling.temperature, request.sampling.top_k) == (0.6, 5)
    assert request.sampling.xtc_probability == 0.25
    assert (request.speculation.draft_length, request.speculation.verify) == (6, VerifyRule.coupled)
    assert opened.store.settings.temperature is None


def test_settings_survive_a_restart_as_choices(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window()
    opened.window.open_settings()
    dialog = opened.window._settings_dialog
    assert dialog is not None
    dialog.sampling.rows["dry_multiplier"].box.setValue(0.8)
    dialog.close()
    opened.window.close()
    opened.store.load()
    assert (opened.store.settings.dry_multiplier, opened.store.settings.temperature) == (0.8, None)
