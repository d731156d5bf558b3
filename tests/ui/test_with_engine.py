"""The whole program but its `main`: the real window on the real engine with real models, faults included."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app import paths
from app.chat import ModelPair
from app.engine.client import Engine
from app.engine.protocol import LoadOptions
from app.storage.experiences import ExperienceStore
from app.storage.settings import Settings, SettingsStore
from app.ui import application
from app.ui.chats import PairChoice, SessionState
from app.ui.session import Session
from app.ui.theme import Appearance, ThemeMode
from app.ui.window import MainWindow
from app.ui.wording import KEPT, RESTARTING
from tests.support.models import Models

CONTEXT = 512
WAIT_MS = 60_000


class Running:
    """A shown window on an engine of its own."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.qtbot = qtbot
        self.engine = Engine()
        store = SettingsStore(folder / "settings.json")
        store.settings = Settings(theme="light", temperature=0, context=CONTEXT, max_tokens=24)
        appearance = Appearance(ThemeMode.light)
        self.experiences = ExperienceStore(folder / "experience")
        self.session = Session(self.engine, store.settings, self.experiences)
        self.window = MainWindow(self.session, store, appearance, paths.starter_model())
        qtbot.addWidget(self.window)
        self.window.show()
        self.settings = store.settings
        application.load_first_pair(self.session, self.window, store.settings, paths.starter_model())
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        self.qtbot.waitUntil(lambda: self.session.state is SessionState.idle, timeout=WAIT_MS)

    def choose(self, target: Path, draft: Path | None = None) -> None:
        self.session.choose(PairChoice(target, draft, "auto", CONTEXT))
        self.wait_until_idle()

    def say(self, text: str) -> None:
        prompt = self.window.composer.prompt
        prompt.setPlainText(text)
        self.qtbot.keyClick(prompt, Qt.Key.Key_Return)

    def ask(self, text: str) -> str:
        """Send a message with the keyboard and return the finished answer as it stands in the transcript."""
        shown = len(self.window.transcript.shown())
        self.say(text)
        self.wait_until_idle()
        assert len(self.window.transcript.shown()) == shown + 2
        return self.window.transcript.shown()[-1].text

    @property
    def banners(self) -> list[str]:
        return [banner.text for banner in self.window.banners.banners]

    def close(self) -> None:
        self.window.close()
        self.session.close()
        self.engine.close()


@pytest.fixture
def running(qtbot: QtBot, tmp_path: Path) -> Iterator[Running]:
    program = Running(qtbot, tmp_path)
    yield program
    program.close()


def test_the_first_start_chats_with_the_starter(running: Running) -> None:
    assert running.ask("Count from one to twenty in words.")
    assert running.banners == []
    answer = running.window.transcript.shown()[-1]
    assert "24 tokens" in answer.footer
    assert "".join(span.text for span in answer.spans) == answer.text


def test_a_pair_answers_and_the_panel_counts_what_it_did(running: Running, models: Models) -> None:
    running.choose(models.path("smol-q8"), models.path("smol-q4"))
    running.ask("Tell a story about a lighthouse keeper.")
    stats = running.window.panel._stats
    assert stats.tokens == 24
    assert stats.accepted > 0
    assert stats.drafted == stats.accepted + stats.rejected + stats.discarded
    assert f"{stats.draft_acceptance_rate:.0%}".removesuffix("%") in running.window.transcript.shown()[-1].footer
    assert running.banners == []


def test_what_is_learned_of_a_pair_outlives_the_run(running: Running, models: Models) -> None:
    target, draft = models.path("deep-q8"), models.path("smol-q4")
    running.settings.max_tokens = 48
    running.choose(target, draft)
    known = running.experiences.load(ModelPair(target, draft), LoadOptions())
    assert known is None
    running.ask("Tell a story about a lighthouse keeper.")
    plain_speed = running.session.plain_tokens_per_s
    assert plain_speed is not None
    known = running.experiences.load(ModelPair(target, draft), LoadOptions())
    assert known is not None
    assert 1 / known["target"]["unit_s"] == pytest.approx(plain_speed)
    assert known["draft"]["unit_s"] is not None
    assert running.session.pacing is not None
    assert running.window.panel.findChild(QLabel, "factor").text().endswith("×")

    # Another pair makes the engine forget; what it says after one more token was given back to it.
    running.choose(target)
    running.settings.max_tokens = 1
    running.choose(target, draft)
    running.ask("And then?")
    again = running.experiences.load(ModelPair(target, draft), LoadOptions())
    assert again is not None
    assert again["draft"] == known["draft"]


def test_a_worker_killed_in_an_answer_costs_nothing(running: Running, models: Models) -> None:
    running.settings.max_tokens = None
    running.choose(models.path("smol-q8"), models.path("smol-q4"))
    running.say("Tell a long story about a lighthouse keeper.")
    running.qtbot.waitUntil(
        lambda: bool(running.session.open_answer and len(running.session.open_answer.spans) > 20), timeout=WAIT_MS
    )
    running.window.composer.set_text("Being written")
    assert running.engine._worker is not None
    os.kill(running.engine._worker.pid, signal.SIGKILL)
    running.qtbot.waitUntil(lambda: bool(running.banners), timeout=WAIT_MS)
    (banner,) = running.banners
    assert RESTARTING in banner
    assert len(running.window.transcript.shown()[-1].text) > 40
    assert running.window.composer.text() == "Being written"
    running.wait_until_idle()
    running.settings.max_tokens = 24
    assert running.ask("Go on.")


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("broken-truncated", "damaged"),
        ("broken-text", "not a GGUF file"),
        ("broken-mmproj", "projector"),
        ("embedding-model", "cannot chat"),
    ],
)
def test_a_target_that_is_none_is_refused_in_place(running: Running, models: Models, name: str, named: str) -> None:
    before = running.ask("Say something.")
    running.choose(models.path(name))
    (banner,) = running.banners
    assert named in banner
    assert KEPT in banner
    assert running.window.transcript.shown()[-1].text == before
    assert running.session.choice is not None
    assert running.session.choice.target == paths.starter_model()
    assert running.ask("And once more.")


def test_a_draft_of_another_vocabulary_serves_without_a_word_too_many(running: Running, models: Models) -> None:
    running.choose(models.path("smol-q8"))
    alone = running.ask("Say something.")
    running.window.new_chat()
    running.choose(models.path("smol-q8"), models.path("tiny-other"))
    assert running.banners == []
    assert running.ask("Say something.") == alone


@pytest.mark.parametrize(("name", "named"), [("embedding-model", "cannot chat"), ("broken-truncated", "damaged")])
def test_a_draft_that_does_not_fit_is_refused_in_place(running: Running, models: Models, name: str, named: str) -> None:
    running.choose(models.path("smol-q8"), models.path(name))
    assert [named in banner for banner in running.banners] == [True]
    assert running.ask("Say something.")


def test_a_message_longer_than_the_context_is_said(running: Running) -> None:
    running.ask("Say something.")
    running.say("word " * 3000)
    running.qtbot.waitUntil(lambda: running.session.state is SessionState.idle, timeout=WAIT_MS)
    said = [*running.banners, *(message.notice for message in running.window.transcript.shown())]
    assert any(str(CONTEXT) in text and "Shorten" in text for text in said)
    assert running.ask("A short one.")


def test_a_template_that_raises_is_said_and_answered(running: Running, models: Models) -> None:
    running.choose(models.path("broken-template"))
    assert running.ask("Say something.") != ""
    said = [*running.banners, *(message.notice for message in running.window.transcript.shown())]
    assert any("template" in text for text in said)


def test_stopping_ends_the_answer_and_keeps_it(running: Running, models: Models) -> None:
    running.settings.max_tokens = None
    running.choose(models.path("smol-q8"), models.path("smol-q4"))
    running.say("Tell a very long story.")
    running.qtbot.waitUntil(
        lambda: bool(running.session.open_answer and len(running.session.open_answer.spans) > 5), timeout=WAIT_MS
    )
    running.qtbot.keyClick(running.window, Qt.Key.Key_Escape)
    running.wait_until_idle()
    answer = running.window.transcript.shown()[-1]
    assert answer.notice == "Stopped"
    assert answer.text
