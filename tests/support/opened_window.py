"""A whole window on an engine without models, for the tests of the interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.storage.experiences import ExperienceStore
from app.storage.settings import Settings, SettingsStore
from app.ui import application
from app.ui.session import Session
from app.ui.theme import Appearance, ThemeMode
from app.ui.window import MainWindow
from tests.support.fake_engine import FakeEngine

STARTER = Path("/models/SmolLM2-135M-Instruct.Q4_1.gguf")


class Opened:
    """A shown window with its parts, the starter model being loaded."""

    def __init__(self, tmp_path: Path, settings: Settings | None, **arguments: Any) -> None:
        self.engine = FakeEngine(**arguments)
        self.store = SettingsStore(tmp_path / "settings.json")
        self.store.settings = settings or Settings(theme="light")
        self.appearance = Appearance(ThemeMode(self.store.settings.theme), self.store.settings.zoom)
        self.experiences = ExperienceStore(tmp_path / "experience")
        self.session = Session(self.engine, self.store.settings, self.experiences)
        self.window = MainWindow(self.session, self.store, self.appearance, STARTER)
        self.window.show()
        self.window.composer.take_focus()
        application.load_first_pair(self.session, self.window, self.store.settings, STARTER)

    def close(self) -> None:
        self.window.close()
        self.engine.close()
        self.session.close()


def say(qtbot: QtBot, opened: Opened, text: str) -> None:
    prompt = opened.window.composer.prompt
    prompt.setPlainText(text)
    qtbot.keyClick(prompt, Qt.Key.Key_Return)
