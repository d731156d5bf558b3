"""The window's columns, sizes, names and memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QAbstractButton, QAbstractScrollArea, QApplication, QLabel, QScrollArea, QWidget
from pytestqt.qtbot import QtBot

from app.storage.settings import Settings, SettingsStore
from app.ui.chats import ProblemKind, SessionState
from app.ui.settings.dialog import SettingsDialog
from app.ui.theme import Appearance
from app.ui.widgets.banner import BannerStack
from tests.support.opened_window import Opened, say

pytestmark = pytest.mark.gui


def visible_widgets(window: QWidget) -> list[QWidget]:
    return [widget for widget in window.findChildren(QWidget) if widget.isVisible()]


def clipped(window: QWidget) -> list[str]:
    """Buttons and labels that stick out of the window or of their parent, or that are too small for their text."""
    found = []
    for widget in visible_widgets(window):
        if not isinstance(widget, QAbstractButton | QLabel) or _is_scrolled(widget):
            continue
        place = QRect(widget.mapTo(window, QPoint(0, 0)), widget.size())
        hint = widget.minimumSizeHint()
        parent = widget.parentWidget()
        fits = window.rect().contains(place) and parent.rect().contains(widget.geometry())
        if not fits or widget.width() < hint.width() or widget.height() < hint.height():
            found.append(f"{type(widget).__name__} {widget.accessibleName() or widget.text()!r}: {place}, needs {hint}")
    return found


def _is_scrolled(widget: QWidget) -> bool:
    parent = widget.parentWidget()
    while parent is not None:
        if isinstance(parent, QAbstractScrollArea):
            return True
        parent = parent.parentWidget()
    return False


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(640, 480), (900, 600), (1360, 860)])
def test_nothing_is_clipped(
    qtbot: QtBot, open_window: Callable[..., Opened], size: tuple[int, int], theme: Any
) -> None:
    opened = open_window(settings=Settings(theme=theme), answer="Fine.")
    window = opened.window
    window.resize(*size)
    say(qtbot, opened, "A question whose title is longer than the header of a small window can show in one line")
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)
    window.show_problem(
        ProblemKind.warning, "Something that needs to be said in a sentence of some length, twice over."
    )
    qtbot.wait(20)
    assert (window.width(), window.height()) == size
    assert clipped(window) == []
    assert window.transcript.height() >= 120
    assert window.transcript.width() >= 400


def test_columns_become_drawers_where_there_is_no_room(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    window = open_window().window
    window.resize(1360, 860)
    assert window.sidebar.isVisible()
    assert window.panel.isVisible()
    window.resize(900, 600)
    assert not window.sidebar.isVisible()
    assert window.panel.isVisible()
    assert window.header.sidebar_button.isVisible()
    window.resize(899, 600)
    assert window.sidebar.isVisible()
    assert not window.panel.isVisible(), "a drawer starts closed"
    width = window.transcript.width()
    window.toggle_panel()
    assert window.panel.isVisible()
    assert window.transcript.width() == width, "a drawer lies over the transcript"
    assert window.panel.geometry().bottom() < window.composer.mapTo(window, QPoint(0, 0)).y()
    window.resize(1360, 860)
    assert window.sidebar.isVisible()
    assert window.panel.isVisible()


def test_shortcuts_and_buttons_show_and_hide_the_same(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window()
    window = opened.window
    control = Qt.KeyboardModifier.ControlModifier
    both = control | Qt.KeyboardModifier.ShiftModifier
    qtbot.keyClick(window, Qt.Key.Key_B, control)
    assert not window.sidebar.isVisible()
    window.header.sidebar_button.click()
    assert window.sidebar.isVisible()
    qtbot.keyClick(window, Qt.Key.Key_P, both)
    assert not window.panel.isVisible()
    assert not window.header.panel_button.isChecked()
    window.header.panel_button.click()
    assert window.panel.isVisible()
    qtbot.keyClick(window, Qt.Key.Key_C, both)
    assert opened.store.settings.show_sources
    assert window.header.sources_button.isChecked()
    window.header.sources_button.click()
    assert not opened.store.settings.show_sources
    qtbot.keyClick(window, Qt.Key.Key_Plus, control)
    assert opened.appearance.zoom == pytest.approx(1.1)
    qtbot.keyClick(window, Qt.Key.Key_0, control)
    assert opened.appearance.zoom == 1


def test_the_window_remembers_itself(qtbot: QtBot, open_window: Callable[..., Opened], tmp_path: Path) -> None:
    opened = open_window()
    opened.window.setGeometry(30, 40, 1000, 700)
    opened.window.toggle_panel()
    opened.window.close()
    again = SettingsStore(tmp_path / "settings.json").load()
    assert again.window == [30, 40, 1000, 700]
    assert not again.panel_visible
    assert again.sidebar_visible
    second = open_window(settings=again)
    assert second.window.size().toTuple() == (1000, 700)
    assert not second.window.panel.isVisible()


def test_a_place_on_a_screen_that_is_gone_is_not_taken(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    window = open_window(settings=Settings(window=[90_000, 90_000, 800, 600])).window
    screens = QApplication.screens()
    assert any(screen.geometry().intersects(window.geometry()) for screen in screens)


def test_every_widget_that_takes_the_focus_has_a_name(qtbot: QtBot, open_window: Callable[..., Opened]) -> None:
    opened = open_window(answer="Text.\n\n```python\nx = 1\n```\n")
    say(qtbot, opened, "Go")
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)
    opened.window.open_picker()
    opened.window.open_settings()
    qtbot.wait(50)
    nameless = []
    for top in (opened.window, opened.window._picker, *opened.window.findChildren(SettingsDialog)):
        for widget in visible_widgets(top):
            takes_focus = bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus)
            stands_for_another = widget.focusProxy() is not None or isinstance(widget, QScrollArea)
            if not takes_focus or stands_for_another:
                continue
            interface = QAccessible.queryAccessibleInterface(widget)
            if interface is None or not interface.text(QAccessible.Text.Name).strip():
                nameless.append(f"{type(widget).__name__} in {type(widget.parentWidget()).__name__}")
    assert nameless == []


def test_banners_stack_to_three_without_repetition(qtbot: QtBot) -> None:
    stack = BannerStack(Appearance())
    qtbot.addWidget(stack)
    for text in ("one", "two", "one", "three", "four"):
        stack.add(ProblemKind.info, text)
    assert [banner.text for banner in stack.banners] == ["four", "three", "one"]
    stack.banners[1].close_button.click()
    assert [banner.text for banner in stack.banners] == ["four", "one"]
    for banner in stack.banners:
        stack.remove(banner)
    assert not stack.isVisible()
