"""What the tests of the interface share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from app.storage.settings import Settings
from app.ui.chats import SessionState
from tests.support.opened_window import Opened


@pytest.fixture
def open_window(qtbot: QtBot, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    opened: list[Opened] = []

    def build(*, settings: Settings | None = None, is_ready: bool = True, **arguments: Any) -> Opened:
        opened.append(Opened(tmp_path, settings, **arguments))
        qtbot.addWidget(opened[-1].window)
        if is_ready:
            qtbot.waitUntil(lambda: opened[-1].session.state is SessionState.idle)
        return opened[-1]

    yield build
    for each in opened:
        each.close()
