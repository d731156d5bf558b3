from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QEnterEvent, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel
from pytestqt.qtbot import QtBot

from app.chat import Role
from app.engine.rounds import DrafterKind, Span, TokenSource
from app.ui.chat.buttons import JumpButton
from app.ui.chat.code import CodeBlock
from app.ui.chat.markdown import MarkdownSurface
from app.ui.chat.transcript import ShownMessage, TranscriptView
from app.ui.chat.views import AnswerView, MessageView
from app.ui.theme import Appearance, ThemeMode

PARAGRAPH = "The light swept the bay in slow, patient circles, and the boats answered with small yellow windows. "
CODE = "```python\ndef f():\n    return 1\n```\n"


def span(text: str, source: TokenSource = TokenSource.draft, *, is_reasoning: bool = False) -> Span:
    return Span(text, source, DrafterKind.model, is_reasoning)


def conversation(turns: int, words: int = 1) -> list[ShownMessage]:
    return [
        ShownMessage(Role.assistant, f"Answer {i}. " + PARAGRAPH * words + "\n\n" + CODE * (i % 3))
        if i % 2
        else ShownMessage(Role.user, f"Question {i}?")
        for i in range(turns)
    ]


@pytest.fixture
def appearance(qapp: QApplication) -> Appearance:
    return Appearance(ThemeMode.light)


@pytest.fixture
def transcript(appearance: Appearance, qtbot: QtBot) -> Iterator[TranscriptView]:
    view = TranscriptView(appearance)
    qtbot.addWidget(view)
    view.resize(900, 600)
    view.show()
    qtbot.waitExposed(view)
    yield view
    view.hide()


def answer_view(transcript: TranscriptView, key: int) -> AnswerView:
    view = transcript.views()[key]
    assert isinstance(view, AnswerView)
    return view


def shown_text(view: AnswerView) -> list[str]:
    return [
        part.surface.toPlainText() if isinstance(part, CodeBlock) else part.toPlainText()
        for part in view.parts
        if part.isVisibleTo(view)
    ]


def first_visible(transcript: TranscriptView) -> tuple[MessageView, int]:
    """The message at the top of the viewport, and where it begins there."""
    views = [view for view in transcript.views().values() if view.geometry().bottom() >= 0]
    top = min(views, key=lambda view: view.y())
    return top, top.y()


def drained(qtbot: QtBot, transcript: TranscriptView) -> None:
    qtbot.waitUntil(lambda: not transcript._queue)


# -- only what is near is a widget ------------------------------------------------------------------------------------


def test_of_2000_messages_few_are_widgets(transcript: TranscriptView) -> None:
    transcript.load(conversation(2000))
    assert 0 < len(transcript.views()) < 40
    bar = transcript.verticalScrollBar()
    for share in (0.0, 0.3, 0.5, 0.9):
        bar.setValue(int(bar.maximum() * share))
        assert 0 < len(transcript.views()) < 60
    assert len(transcript.shown()) == 2000


def test_the_viewport_is_covered_wherever_one_goes(transcript: TranscriptView) -> None:
    transcript.load(conversation(300))
    bar = transcript.verticalScrollBar()
    gap = 80
    for value in range(0, bar.maximum(), max(1, bar.maximum() // 37)):
        bar.setValue(value)
        places = sorted((view.y(), view.geometry().bottom()) for view in transcript.views().values())
        assert places[0][0] <= gap
        assert places[-1][1] >= transcript.viewport().height() - gap
        assert all(0 <= after[0] - before[1] < gap for before, after in itertools.pairwise(places))


def test_scrolling_back_to_messages_not_yet_measured_moves_by_what_was_scrolled(transcript: TranscriptView) -> None:
    transcript.load(conversation(400, words=7))
    bar = transcript.verticalScrollBar()
    for _ in range(60):
        view, y = first_visible(transcript)
        bar.setValue(bar.value() - 50)
        assert view.y() == y + 50


def test_a_narrower_window_keeps_the_message_one_reads(transcript: TranscriptView) -> None:
    transcript.load(conversation(100, words=5))
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    row_at_top = min(key for key, view in transcript.views().items() if view.geometry().bottom() >= 0)
    transcript.resize(520, 600)
    view = transcript.views()[row_at_top]
    assert view.y() <= 28
    assert view.geometry().bottom() >= 0


# -- following --------------------------------------------------------------------------------------------------------


def test_it_follows_the_answer_from_the_end(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.load(conversation(20))
    transcript.add_user("Go")
    key = transcript.begin_answer()
    bar = transcript.verticalScrollBar()
    for _ in range(12):
        transcript.append([span(PARAGRAPH + "\n\n")])
        drained(qtbot, transcript)
        assert bar.value() == bar.maximum()
    bottom = answer_view(transcript, key).geometry().bottom()
    assert 0 < bottom <= transcript.viewport().height()


def test_it_stays_where_the_reader_went(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.load(conversation(20, words=4))
    transcript.begin_answer()
    transcript.append([span(PARAGRAPH * 5)])
    drained(qtbot, transcript)
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() - 200)
    view, y = first_visible(transcript)
    for _ in range(6):
        transcript.append([span(PARAGRAPH + "\n\n" + CODE)])
        drained(qtbot, transcript)
        assert view.y() == y
    assert not transcript.is_following

    jump = transcript.findChild(JumpButton)
    assert jump.isVisible()
    assert jump.accessibleName() == "Jump to latest"
    qtbot.mouseClick(jump, Qt.MouseButton.LeftButton)
    assert bar.value() == bar.maximum()
    assert transcript.is_following
    assert not jump.isVisible()


def test_the_way_back_shows_only_while_an_answer_is_written(transcript: TranscriptView) -> None:
    transcript.load(conversation(40))
    transcript.verticalScrollBar().setValue(0)
    jump = transcript.findChild(JumpButton)
    assert not jump.isVisible()
    transcript.begin_answer()
    transcript.verticalScrollBar().setValue(0)
    assert jump.isVisible()
    transcript.finish_answer("")
    assert not jump.isVisible()


def test_a_new_message_is_always_seen(transcript: TranscriptView) -> None:
    transcript.load(conversation(40))
    bar = transcript.verticalScrollBar()
    bar.setValue(0)
    key = transcript.add_user("Here I am")
    assert bar.value() == bar.maximum() > 0
    assert key in transcript.views()


# -- streaming --------------------------------------------------------------------------------------------------------


def test_pieces_of_any_size_end_in_what_was_shown_at_once(transcript: TranscriptView, qtbot: QtBot) -> None:
    text = f"# Head\n\nSome **bold** 🎉 text\n\n{CODE}\n- a\n- b\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n~~~\nopen"
    transcript.load([ShownMessage(Role.assistant, text)])
    (at_once,) = transcript.views().values()
    key = transcript.begin_answer()
    for start in range(0, len(text), 5):
        transcript.append([span(text[start : start + 5])])
        transcript._drain()
    transcript.finish_answer("")
    assert isinstance(at_once, AnswerView)
    assert shown_text(answer_view(transcript, key)) == shown_text(at_once)
    assert answer_view(transcript, key).height() == at_once.height()


def test_only_the_last_part_is_rendered_again(transcript: TranscriptView, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    original = MarkdownSurface._render

    def counting(surface: MarkdownSurface) -> None:
        rendered.append(surface._markdown)
        original(surface)

    transcript.begin_answer()
    transcript.append([span("first\n\n" + CODE + "second")])
    transcript._drain()
    monkeypatch.setattr(MarkdownSurface, "_render", counting)
    transcript.append([span(" grows")])
    transcript._drain()
    assert rendered == ["second grows"]


def test_the_timer_rests_with_nothing_to_do_and_while_hidden(transcript: TranscriptView, qtbot: QtBot) -> None:
    timer = transcript._timer
    assert not timer.isActive()
    transcript.begin_answer()
    transcript.append([span("one")])
    assert timer.isActive()
    qtbot.waitUntil(lambda: not timer.isActive())
    transcript.hide()
    transcript.append([span(" two")])
    assert not timer.isActive()
    transcript.show()
    drained(qtbot, transcript)
    transcript.finish_answer("")
    assert transcript.shown()[0].text == "one two"


def test_finishing_shows_the_footer_and_copies_the_source(transcript: TranscriptView, qtbot: QtBot) -> None:
    key = transcript.begin_answer()
    transcript.append([span("Some **bold**")])
    transcript.finish_answer("48.2 tok/s", "Stopped")
    view = answer_view(transcript, key)
    words = {label.text() for label in view.findChildren(QLabel) if label.isVisible()}
    assert {"48.2 tok/s", "Stopped"} <= words
    QApplication.sendEvent(view, QEvent(QEvent.Type.Leave))
    assert not view.copy_button.is_revealed
    QApplication.sendEvent(view, QEnterEvent(QPointF(5, 5), QPointF(5, 5), QPointF(5, 5)))
    assert view.copy_button.is_revealed
    qtbot.mouseClick(view.copy_button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == "Some **bold**"
    assert view.copy_button.text() == "Copied"


def test_code_copies_and_wraps(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.load([ShownMessage(Role.assistant, f"```python\n{'x = 1; ' * 60}\n```")])
    block = transcript.findChild(CodeBlock)
    qtbot.mouseClick(block.copy_button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == "x = 1; " * 60
    before = block.height()
    assert block.surface.horizontalScrollBar().maximum() > 0
    qtbot.mouseClick(block.wrap_button, Qt.MouseButton.LeftButton)
    assert block.height() > before
    assert block.surface.horizontalScrollBar().maximum() == 0


def test_code_appears_from_its_beginning(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.begin_answer()
    for word in ["```\n", "a long line " * 20, "and more " * 20, "\nnext"]:
        transcript.append([span(word)])
        transcript._drain()
    block = transcript.findChild(CodeBlock)
    assert block.surface.horizontalScrollBar().maximum() > 0
    assert block.surface.horizontalScrollBar().value() == 0


def test_reasoning_is_open_while_thinking_and_folds_for_the_answer(transcript: TranscriptView, qtbot: QtBot) -> None:
    key = transcript.begin_answer()
    transcript.append([span("Let me see. ", is_reasoning=True)])
    transcript._drain()
    block = answer_view(transcript, key).reasoning
    assert block is not None
    assert block.button.text() == "Thinking…"
    assert block.surface.isVisible()
    assert block.surface.toPlainText() == "Let me see. "
    transcript.append([span("Yes.")])
    transcript._drain()
    assert block.button.text().startswith("Thought for ")
    assert not block.surface.isVisible()
    folded = block.height()
    qtbot.mouseClick(block.button, Qt.MouseButton.LeftButton)
    assert block.surface.isVisible()
    assert block.height() > folded
    assert not transcript.findChild(JumpButton).isVisible(), "there is nothing to jump to"
    transcript.append([span(" More.")])
    transcript._drain()
    assert block.surface.isVisible(), "the reader's choice holds"
    transcript.finish_answer("")
    assert transcript.shown()[0].reasoning == "Let me see. "


# -- conversations ----------------------------------------------------------------------------------------------------


def test_a_conversation_can_be_put_away_and_shown_again(transcript: TranscriptView) -> None:
    transcript.add_user("Hi\nthere")
    transcript.begin_answer()
    transcript.append([span("hm", is_reasoning=True), span("Hello", TokenSource.recovered)])
    transcript.finish_answer("9 tok/s", "Stopped")
    transcript.add_note("Earlier messages are not sent.")
    kept = transcript.shown()
    transcript.clear()
    assert transcript.shown() == []
    assert transcript.views() == {}
    transcript.load(kept)
    assert transcript.shown() == kept
    assert [m.role for m in kept] == [Role.user, Role.assistant, Role.system]


def test_an_answer_under_way_goes_on_after_coming_back(transcript: TranscriptView) -> None:
    transcript.add_user("Hi")
    transcript.begin_answer()
    transcript.append([span("Hel")])
    kept = transcript.shown()
    transcript.load(conversation(4))
    transcript.load(kept, answering=True)
    transcript.append([span("lo")])
    transcript.finish_answer("done")
    assert transcript.shown()[1].text == "Hello"
    assert transcript.shown()[1].footer == "done"


def test_what_arrives_without_an_open_answer_is_dropped(transcript: TranscriptView) -> None:
    transcript.append([span("late")])
    transcript.finish_answer("late")
    assert transcript.shown() == []


def test_the_empty_state_teaches(transcript: TranscriptView) -> None:
    transcript.set_empty_state("Ask something.")
    (label,) = [w for w in transcript.viewport().findChildren(QLabel) if w.text() == "Ask something."]
    assert label.isVisible()
    transcript.add_user("Hi")
    assert not label.isVisible()
    transcript.clear()
    assert label.isVisible()


def test_user_text_is_plain_and_keeps_its_lines(transcript: TranscriptView) -> None:
    key = transcript.add_user("**not bold**\n<b>x</b>")
    view = transcript.views()[key]
    (surface,) = [w for w in view.children() if hasattr(w, "toPlainText")]
    assert surface.toPlainText() == "**not bold**\n<b>x</b>"
    assert surface.geometry().left() > view.width() // 2, "on the right"


# -- sources ----------------------------------------------------------------------------------------------------------


def test_sources_can_be_switched_on_and_off(transcript: TranscriptView) -> None:
    spans = (
        span("Some "),
        span("**bo", TokenSource.recovered),
        span("ld** 🎉 w", TokenSource.bonus),
        span("ord\n\n```\nco🎉de", TokenSource.plain),
        span(" x\n```", TokenSource.recovered),
    )
    message = ShownMessage(Role.assistant, "".join(s.text for s in spans), spans=spans)
    transcript.load([message])
    (view,) = transcript.views().values()
    assert isinstance(view, AnswerView)
    text, code = view.parts
    assert isinstance(text, MarkdownSurface)
    assert isinstance(code, CodeBlock)
    assert list(text.tints) == []
    transcript.set_show_sources(True)
    found = [(t.start, t.end, t.source) for t in text.tints]
    assert text.toPlainText() == "Some bold 🎉 word"
    assert found == [
        (0, 5, TokenSource.draft),
        (5, 7, TokenSource.recovered),
        (7, 14, TokenSource.bonus),  # "ld 🎉 w", the emoji two units wide
        (14, 17, TokenSource.plain),
    ]
    assert [(t.start, t.end, t.source) for t in code.surface.tints] == [
        (0, 6, TokenSource.plain),
        (6, 8, TokenSource.recovered),
    ]
    transcript.set_show_sources(False)
    assert list(text.tints) == []


def test_sources_of_a_growing_answer(transcript: TranscriptView) -> None:
    transcript.set_show_sources(True)
    key = transcript.begin_answer()
    for text, source in [
        ("One ", TokenSource.draft),
        ("two", TokenSource.recovered),
        (" **three**", TokenSource.bonus),
    ]:
        transcript.append([span(text, source)])
        transcript._drain()
    (part,) = answer_view(transcript, key).parts
    assert isinstance(part, MarkdownSurface)
    assert [(t.start, t.end) for t in part.tints] == [(0, 4), (4, 7), (7, 13)]


# -- the reader -------------------------------------------------------------------------------------------------------


def test_keys_scroll(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.load(conversation(60))
    bar = transcript.verticalScrollBar()
    transcript.setFocus()
    qtbot.keyClick(transcript, Qt.Key.Key_Home)
    assert bar.value() == 0
    qtbot.keyClick(transcript, Qt.Key.Key_PageDown)
    assert bar.value() == bar.pageStep()
    qtbot.keyClick(transcript, Qt.Key.Key_PageUp)
    assert bar.value() == 0
    qtbot.keyClick(transcript, Qt.Key.Key_End)
    assert bar.value() == bar.maximum()
    assert transcript.is_following


def test_the_wheel_over_text_scrolls_the_transcript(transcript: TranscriptView) -> None:
    transcript.load(conversation(60))
    before = transcript.verticalScrollBar().value()
    middle = transcript.viewport().rect().center()
    under = transcript.childAt(middle)
    while under is not None and not isinstance(under, MarkdownSurface | CodeBlock):
        under = under.parentWidget()
    assert under is not None, "the pointer is to be over a text"
    QTest.wheelEvent(transcript.windowHandle(), QPointF(middle), QPoint(0, 120))
    assert transcript.verticalScrollBar().value() < before


def test_links_are_handed_on(transcript: TranscriptView, qtbot: QtBot) -> None:
    transcript.load([ShownMessage(Role.assistant, "[docs](https://example.org/x)")])
    surface = transcript.findChild(MarkdownSurface)
    with qtbot.waitSignal(transcript.link_activated) as caught:
        qtbot.mouseClick(surface.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(12, 14))
    assert caught.args == [QUrl("https://example.org/x")]


def test_theme_and_zoom_change_what_is_there(transcript: TranscriptView, appearance: Appearance) -> None:
    transcript.load([ShownMessage(Role.assistant, PARAGRAPH * 6, reasoning="hm", footer="f")])
    (before,) = transcript.views().values()
    height = before.height()
    appearance.set_zoom(1.5)
    (after,) = transcript.views().values()
    assert after.height() > height
    appearance.set_mode(ThemeMode.dark)
    corner = transcript.grab().toImage().pixelColor(2, 2)
    assert corner == appearance.theme.color("ground")


def test_a_theme_change_does_not_interrupt_an_answer(transcript: TranscriptView, appearance: Appearance) -> None:
    key = transcript.begin_answer()
    transcript.append([span("Hel")])
    transcript._drain()
    appearance.set_mode(ThemeMode.dark)
    transcript.append([span("lo")])
    transcript._drain()
    assert shown_text(answer_view(transcript, key)) == ["Hello"]
    transcript.finish_answer("")


def test_whatever_takes_the_focus_has_a_name(transcript: TranscriptView) -> None:
    transcript.load(
        [ShownMessage(Role.user, "q"), ShownMessage(Role.assistant, "a\n" + CODE, reasoning="r", footer="f")]
    )
    transcript.begin_answer()
    for widget in [transcript, *transcript.findChildren(MarkdownSurface), *transcript.findChildren(QAbstractButton)]:
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus:
            assert widget.accessibleName(), widget
    transcript.finish_answer("")
