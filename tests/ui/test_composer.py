from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication, QLabel, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.ui.chat.column import column
from app.ui.chat.composer import Composer
from app.ui.theme import Appearance, ThemeMode

ENTER, SHIFT = Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def composer(qtbot: QtBot, qapp: QApplication) -> Iterator[Composer]:
    window = QWidget()
    qtbot.addWidget(window)
    made = Composer(Appearance(ThemeMode.light))
    layout = QVBoxLayout(window)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.addStretch(1)
    layout.addWidget(made)
    window.resize(800, 600)
    window.show()
    qtbot.waitExposed(window)
    made.take_focus()
    yield made
    window.hide()


@pytest.fixture
def sent(composer: Composer) -> list[str]:
    texts: list[str] = []
    composer.submitted.connect(texts.append)
    return texts


@pytest.fixture
def stops(composer: Composer) -> list[bool]:
    requests: list[bool] = []
    composer.stop_requested.connect(lambda: requests.append(True))
    return requests


def test_enter_sends_and_clears(composer: Composer, sent: list[str], qtbot: QtBot) -> None:
    qtbot.keyClicks(composer.prompt, "Hello")
    qtbot.keyClick(composer.prompt, ENTER)
    assert sent == ["Hello"]
    assert composer.text() == ""


def test_shift_enter_breaks_the_line(composer: Composer, sent: list[str], qtbot: QtBot) -> None:
    qtbot.keyClicks(composer.prompt, "a")
    qtbot.keyClick(composer.prompt, ENTER, SHIFT)
    qtbot.keyClicks(composer.prompt, "b")
    assert sent == []
    qtbot.keyClick(composer.prompt, ENTER)
    assert sent == ["a\nb"]


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
def test_nothing_is_not_sent(composer: Composer, sent: list[str], qtbot: QtBot, text: str) -> None:
    composer.set_text(text)
    qtbot.keyClick(composer.prompt, ENTER)
    assert sent == []
    assert not composer.button.isEnabled()


def test_composing_with_an_input_method_does_not_send(composer: Composer, sent: list[str], qtbot: QtBot) -> None:
    QApplication.sendEvent(composer.prompt, QInputMethodEvent("にほ", []))
    qtbot.keyClick(composer.prompt, ENTER)
    assert sent == []
    done = QInputMethodEvent("", [])
    done.setCommitString("日本")
    QApplication.sendEvent(composer.prompt, done)
    qtbot.keyClick(composer.prompt, ENTER)
    assert sent == ["日本"]


def test_while_busy_the_button_stops_and_enter_keeps_the_text(
    composer: Composer, sent: list[str], stops: list[bool], qtbot: QtBot
) -> None:
    assert composer.button.accessibleName() == "Send"
    composer.set_busy(True)
    assert composer.button.accessibleName() == "Stop"
    qtbot.keyClicks(composer.prompt, "next")
    qtbot.keyClick(composer.prompt, ENTER)
    assert (sent, composer.text()) == ([], "next")
    qtbot.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert (stops, sent) == ([True], [])
    composer.set_busy(False)
    qtbot.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert (stops, sent) == ([True], ["next"])


def test_escape_stops_only_what_runs(composer: Composer, stops: list[bool], qtbot: QtBot) -> None:
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Escape)
    assert stops == []
    composer.set_busy(True)
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Escape)
    assert stops == [True]


def test_a_reason_forbids_sending_says_why_and_keeps_the_text(
    composer: Composer, sent: list[str], qtbot: QtBot
) -> None:
    composer.set_hint("Enter sends")
    composer.set_text("hello")
    composer.set_enabled_reason("The model is loading.")
    words = {label.text() for label in composer.findChildren(QLabel)}
    assert "The model is loading." in words
    assert composer.button.toolTip() == "The model is loading."
    assert not composer.button.isEnabled()
    qtbot.keyClick(composer.prompt, ENTER)
    assert (sent, composer.text()) == ([], "hello")
    composer.set_enabled_reason(None)
    assert "Enter sends" in {label.text() for label in composer.findChildren(QLabel)}
    qtbot.keyClick(composer.prompt, ENTER)
    assert sent == ["hello"]


def test_up_recalls_what_was_sent_and_down_comes_back(composer: Composer, sent: list[str], qtbot: QtBot) -> None:
    for text in ("one", "two", "three"):
        composer.set_text(text)
        qtbot.keyClick(composer.prompt, ENTER)
    seen = []
    for key in (Qt.Key.Key_Up, Qt.Key.Key_Up, Qt.Key.Key_Up, Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Down):
        qtbot.keyClick(composer.prompt, key)
        seen.append(composer.text())
    assert seen == ["three", "two", "one", "one", "two", "three"]
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Down)
    assert composer.text() == ""
    assert sent == ["one", "two", "three"]


def test_up_in_a_text_of_ones_own_is_an_arrow_key(composer: Composer, qtbot: QtBot) -> None:
    composer.set_history(["earlier"])
    composer.set_text("mine")
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Up)
    assert composer.text() == "mine"


def test_up_moves_within_a_recalled_text_of_several_lines_first(composer: Composer, qtbot: QtBot) -> None:
    composer.set_history(["older", "first\nsecond"])
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Up)
    assert composer.text() == "first\nsecond"
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Up)
    assert composer.text() == "first\nsecond"
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Up)
    assert composer.text() == "older"


def test_an_edited_recall_is_not_overwritten(composer: Composer, qtbot: QtBot) -> None:
    composer.set_history(["older", "newer"])
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Up)
    qtbot.keyClicks(composer.prompt, "!")
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Up)
    assert composer.text() == "newer!"


def test_it_grows_to_a_share_of_the_window_and_then_scrolls(composer: Composer, qtbot: QtBot) -> None:
    one_line = composer.height()
    composer.set_text("a\nb\nc")
    assert composer.height() > one_line
    assert not composer.prompt.verticalScrollBar().isVisible()
    composer.set_text("\n".join("line" for _ in range(200)))
    tallest = composer.height()
    assert tallest <= 0.4 * 600 + 40
    assert composer.prompt.verticalScrollBar().maximum() > 0
    composer.window().resize(800, 1000)
    assert composer.height() > tallest
    composer.set_text("")
    assert composer.height() == one_line


def test_pasting_takes_the_plain_text_only(composer: Composer) -> None:
    data = QMimeData()
    data.setHtml("<b>bold</b>")
    data.setText("bold")
    composer.prompt.insertFromMimeData(data)
    assert composer.text() == "bold"
    assert "<b>" not in composer.prompt.toHtml()
    assert "font-weight" not in composer.prompt.toHtml().split("<body", 1)[1].split("<p", 1)[1]


def test_files_are_not_taken_as_text(composer: Composer) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/somewhere/file.txt")])
    assert not composer.prompt.canInsertFromMimeData(data)


def test_the_field_stands_in_the_transcripts_column(composer: Composer) -> None:
    composer.window().resize(1200, 600)
    left, width = column(Appearance(ThemeMode.light), composer.width())
    assert composer.prompt.x() > left
    assert composer.button.geometry().right() < left + width
    assert width == 720


def test_count_and_names(composer: Composer) -> None:
    composer.set_count("1,284 of 8,192 tokens")
    assert "1,284 of 8,192 tokens" in {label.text() for label in composer.findChildren(QLabel)}
    assert composer.prompt.accessibleName() == "Message"
    assert composer.prompt.placeholderText() == "Ask anything."
    composer.take_focus()
    assert composer.prompt.hasFocus()
