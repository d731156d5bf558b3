"""The whole window against an engine without models."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.chat import Role
from app.engine.protocol import GenerationStarted
from app.engine.rounds import DrafterKind
from app.errors import ModelFileError
from app.storage.settings import Settings, SettingsStore
from app.ui import application, status
from app.ui.chats import PairChoice, ProblemKind, SessionState
from app.ui.settings.dialog import SettingsDialog
from app.ui.speculation.panel import PanelState
from app.ui.widgets.chip import Dot
from app.ui.window import MainWindow
from tests.support.fake_engine import CRASH, FakeEngine, round_finished
from tests.support.opened_window import STARTER, Opened, say

STARTED = GenerationStarted(0, 40, 0, DrafterKind.lookup, "Drafting by lookup.")
pytestmark = pytest.mark.gui


def test_a_first_start_is_ready_to_be_typed_into(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window()
    assert opened.engine.loads[0].pair.target == STARTER
    assert opened.engine.loads[0].pair.draft is None
    assert status.empty_state(opened.session, STARTER)[0] == status.READY_WITH_STARTER
    summary = opened.window.header.chip.summary
    assert (summary.dot, summary.target, summary.draft, summary.fact) == (Dot.ready, STARTER.stem, "lookup", "ready")
    assert opened.window.focusWidget() is opened.window.composer.prompt
    say(qtbot, opened, "Hello")
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle and len(opened.session.current.shown) == 2)
    assert [m.role for m in opened.window.transcript.shown()] == [Role.user, Role.assistant]
    assert opened.window.transcript.shown()[1].text == opened.engine.answer
    assert opened.window.transcript.shown() == opened.session.current.shown
    assert opened.window.header.title.text() == "Hello"
    assert opened.window.composer.text() == ""


def test_text_typed_while_the_model_loads_is_kept(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window(is_ready=False, load_s=0.5)
    assert opened.session.state is SessionState.loading
    say(qtbot, opened, "Too early")
    assert opened.window.composer.text() == "Too early"
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)
    qtbot.keyClick(opened.window.composer.prompt, Qt.Key.Key_Return)
    assert opened.session.current.shown[0].text == "Too early"


def test_the_button_stops_what_it_started(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window(scripts=[[STARTED, round_finished(0, ["Half "], 0)]])
    say(qtbot, opened, "Tell me")
    assert opened.window.composer.button.accessibleName() == "Stop"
    say(qtbot, opened, "The next one")
    qtbot.waitUntil(lambda: bool(opened.session.open_answer and opened.session.open_answer.spans))
    qtbot.keyClick(opened.window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)
    assert opened.window.composer.button.accessibleName() == "Send"
    assert opened.window.composer.text() == "The next one"
    assert opened.window.transcript.shown()[1].notice == "Stopped"


def test_a_died_engine_costs_neither_text_nor_draft_message(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window(scripts=[[STARTED, round_finished(0, ["Half "], 0)]])
    say(qtbot, opened, "Tell me")
    opened.window.composer.set_text("Being written")
    qtbot.waitUntil(lambda: bool(opened.session.open_answer and opened.session.open_answer.spans))
    opened.engine.die()
    qtbot.waitUntil(lambda: opened.session.state is SessionState.dead)
    assert opened.window.transcript.shown()[1].text == "Half "
    assert opened.window.composer.text() == "Being written"
    (banner,) = opened.window.banners.banners
    assert (banner.kind, banner.text) == (ProblemKind.error, CRASH)
    assert banner.action_button is not None
    assert banner.action_button.text() == "Start the engine again"
    banner.action_button.click()
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)
    assert opened.window.banners.banners == ()
    qtbot.keyClick(opened.window.composer.prompt, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(opened.session.current.shown) == 4)
    assert opened.session.current.shown[-1].text == opened.engine.answer


def test_switching_chats_during_an_answer_shows_each_its_own(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window(tokens_per_s=150.0)
    say(qtbot, opened, "First")
    qtbot.waitUntil(lambda: bool(opened.session.open_answer and opened.session.open_answer.spans))
    qtbot.keyClick(opened.window, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    assert opened.window.transcript.shown() == []
    first = next(chat for chat in opened.session.chats if chat.title == "First")
    opened.window.sidebar.chat_chosen.emit(first.id)
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle, timeout=20_000)
    answer = opened.window.transcript.shown()[-1]
    assert answer.text == opened.engine.answer
    assert answer.footer == first.shown[-1].footer


def test_the_button_matches_the_state_through_any_sequence(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    """STP-04, seen from the outside."""
    chance = random.Random(5)
    opened = open_window(tokens_per_s=3000.0, load_s=0.002)
    window, session = opened.window, opened.session
    other = PairChoice(STARTER, None, "lookup", 2048)
    actions: list[Callable[[], object]] = [
        lambda: say(qtbot, opened, "Go on"),
        lambda: say(qtbot, opened, "And then?"),
        window.composer.button.click,
        window.new_chat,
        lambda: session.show_chat(chance.choice(session.chats).id),
        lambda: session.choose(chance.choice((other, replace(other, context=1024)))),
        lambda: qtbot.wait(chance.randint(1, 25)),
    ]
    for _ in range(150):
        chance.choice(actions)()
        is_answering = session.state in (SessionState.answering, SessionState.stopping)
        assert window.composer.button.accessibleName() == ("Stop" if is_answering else "Send")
        if not window.composer.text().strip():
            assert window.composer.button.isEnabled() is is_answering
        shown = window.transcript.shown()
        written = [session.open_answer.shown()] if session.open_answer else []
        assert [m.text for m in shown] == [m.text for m in (*session.current.shown, *written)]
        assert opened.engine.overlaps == 0
    session.stop()
    qtbot.waitUntil(lambda: session.state in (SessionState.idle, SessionState.no_model))


def test_the_sidebar_lists_the_chats_of_today_newest_first(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window(answer="Fine.")
    for text in ("One", "Two"):
        opened.window.new_chat()
        say(qtbot, opened, text)
        qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)
    items = opened.window.sidebar.list
    assert [items.item(row).text() for row in range(items.count())] == ["Today", "Two", "One"]
    assert not items.item(0).flags() & Qt.ItemFlag.ItemIsSelectable
    items.setCurrentRow(2)
    assert opened.session.current.title == "One"
    assert opened.window.transcript.shown()[0].text == "One"


def test_the_panel_follows_the_session(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    paused = round_finished(1, ["b"], 0)
    object.__setattr__(paused, "drafting_paused", "Paused: plain is faster here.")
    opened = open_window(scripts=[[STARTED, round_finished(0, ["a ", "b "], 2), paused]])
    assert status.panel_state(opened.session)[0] is PanelState.idle
    say(qtbot, opened, "Go")
    qtbot.waitUntil(lambda: status.panel_state(opened.session)[0] is PanelState.paused)
    assert status.panel_state(opened.session)[1] == "Paused: plain is faster here."
    assert opened.window.header.chip.summary.fact == "drafting paused"
    opened.session.stop()
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)


def test_choosing_a_pair_loads_and_remembers_it(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window()
    qtbot.keyClick(opened.window, Qt.Key.Key_O, Qt.KeyboardModifier.ControlModifier)
    picker = opened.window._picker
    assert picker is not None
    picker.target.set_file(Path("/models/big.gguf"))
    qtbot.waitUntil(picker.load_button.isEnabled)
    picker.load_button.click()
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle and len(opened.engine.loads) == 2)
    assert opened.window.header.chip.summary.target == "big"
    assert opened.store.settings.target == "/models/big.gguf"
    assert opened.store.settings.recent_files == ["/models/big.gguf"]
    assert opened.window._picker is None


def test_a_pair_that_could_not_be_loaded_is_not_remembered(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window()
    opened.engine.load_fault = ModelFileError("big.gguf is damaged.")
    opened.window.open_picker()
    picker = opened.window._picker
    assert picker is not None
    picker.target.set_file(Path("/models/big.gguf"))
    qtbot.waitUntil(picker.load_button.isEnabled)
    picker.load_button.click()
    qtbot.waitUntil(lambda: bool(opened.window.banners.banners))
    assert opened.store.settings.target is None


def test_a_verdict_comes_while_an_answer_is_written(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window(scripts=[[STARTED]])
    say(qtbot, opened, "Go")
    opened.window.open_picker()
    picker = opened.window._picker
    assert picker is not None
    qtbot.waitUntil(picker.load_button.isEnabled)
    assert opened.session.state is SessionState.answering
    picker.reject()
    opened.session.stop()
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)


def test_settings_are_in_force_at_once(qtbot: QtBot, open_window: Callable[..., Opened], tmp_path: Path) -> None:
    opened = open_window(answer="Fine.")
    dialog = SettingsDialog(opened.appearance, opened.store.settings, {})
    qtbot.addWidget(dialog)
    dialog.changed.connect(opened.window._on_settings_changed)
    by_name = {w.accessibleName(): w for w in dialog.findChildren(QWidget) if w.accessibleName()}
    by_name["Temperature"].setValue(0.0)
    by_name["Seed"].setText("42")
    by_name["Longest answer"].setValue(100)
    by_name["System prompt"].setPlainText("Be brief.")
    by_name["Theme: dark"].click()
    by_name["Zoom"].setValue(125)
    assert opened.appearance.theme.is_dark
    assert opened.appearance.zoom == 1.25
    say(qtbot, opened, "Go")
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)
    request = opened.engine.generations[0].request
    assert (request.sampling.temperature, request.sampling.seed, request.max_tokens) == (0.0, 42, 100)
    assert request.messages[0].text == "Be brief."
    by_name["Seed"].clear()
    assert opened.store.settings.seed is None
    qtbot.waitUntil(lambda: SettingsStore(tmp_path / "settings.json").load().temperature == 0.0)


def test_a_target_that_is_gone_is_said_and_the_starter_answers(
    qtbot: QtBot, open_window: Callable[..., Opened]
) -> None:
    opened = open_window(settings=Settings(target="/nowhere/x.gguf", drafter="model", draft="/nowhere/y.gguf"))
    assert opened.engine.loads[0].pair.target == STARTER
    assert [b.text for b in opened.window.banners.banners] == [
        "The target chosen last is not there any more: /nowhere/x.gguf."
    ]


def test_the_application_runs_shows_the_window_first_and_survives_an_error(
    qtbot: QtBot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`run` as main.py calls it, with an exception thrown from the event loop."""
    engine = FakeEngine()
    store = SettingsStore(tmp_path / "settings.json")
    seen: list[str] = []

    def look() -> None:
        (window,) = [w for w in QApplication.topLevelWidgets() if isinstance(w, MainWindow)]
        seen.append(f"visible {window.isVisible()}, loads {len(engine.loads)}")
        # What the event loop does with an exception in a slot; raising one here would be pytest-qt's business.
        try:
            raise RuntimeError("a bug")
        except RuntimeError as error:
            sys.excepthook(type(error), error, error.__traceback__)
        seen.extend(banner.text for banner in window.banners.banners)
        QTimer.singleShot(0, window.close)

    hook = sys.excepthook
    QTimer.singleShot(0, look)
    with caplog.at_level(logging.CRITICAL, logger="app.ui.application"):
        assert application.run(engine, store, STARTER) == 0
    engine.close()
    assert sys.excepthook is hook
    assert seen == ["visible True, loads 0", application.BUG_SENTENCE]
