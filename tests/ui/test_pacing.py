"""What pacing reports on its way to the window, and what was learned of a pair on its way to the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.engine.protocol import GenerationStarted, PacingReport
from app.engine.rounds import DrafterKind
from app.storage.settings import Settings
from app.ui import status
from app.ui.chats import PairChoice, SessionState
from app.ui.speculation.by_drafter import ByDrafter
from app.ui.speculation.marks import Mark
from app.ui.speculation.panel import PanelState
from app.ui.speculation.rounds_strip import RoundsStrip
from tests.support.fake_engine import finished, round_finished
from tests.support.opened_window import STARTER, Opened, say

pytestmark = pytest.mark.gui

DRAFT = Path("/models/draft.gguf")
AHEAD = "On: draft runs ahead, or the text so far where it repeats."
STARTED = GenerationStarted(0, 40, 0, DrafterKind.chained, AHEAD)
ON = PacingReport("on", "On: usually 4 draft tokens a round.", 3.6, 20.0, {1: 50.0, 4: 61.26}, 8.44)
PAUSED = PacingReport("paused", "Paused: plain is faster here.", 1.0, 21.0, {1: 47.6}, 8.4)

OpenWindow = Callable[..., Opened]


def shown(opened: Opened, name: str) -> str:
    label = opened.window.panel.findChild(QLabel, name)
    assert label is not None, name
    return label.text()


def choose(qtbot: QtBot, opened: Opened, drafter: str = "auto", draft: Path | None = DRAFT) -> None:
    loads = len(opened.engine.loads)
    opened.session.choose(PairChoice(STARTER, draft, drafter, 4096))
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle and len(opened.engine.loads) > loads)


def finish(qtbot: QtBot, opened: Opened) -> None:
    qtbot.waitUntil(lambda: opened.session.state is SessionState.idle)


def test_before_any_answer_it_says_who_decides(qtbot: QtBot, open_window: OpenWindow) -> None:
    opened = open_window()
    assert status.panel_state(opened.session) == (PanelState.idle, "Drafts by looking up in the text so far.")
    assert shown(opened, "pacing") == "Automatic: learned from the rounds of an answer."
    choose(qtbot, opened)
    assert shown(opened, "sentence") == "draft runs ahead of the target, or the text so far where it repeats."
    choose(qtbot, opened, "none", None)
    assert shown(opened, "pacing") == "–"


def test_a_length_the_user_fixed_is_named(qtbot: QtBot, open_window: OpenWindow) -> None:
    fixed = PacingReport("on", "The draft length is fixed at 1.")
    script = [STARTED, round_finished(0, ["a ", "b "], 1, DrafterKind.model, pacing=fixed), finished()]
    opened = open_window(settings=Settings(theme="light", draft_length=1), scripts=[script])
    assert shown(opened, "pacing") == "Fixed: 1 draft token a round, as chosen in Settings."
    say(qtbot, opened, "Go")
    finish(qtbot, opened)
    assert opened.engine.generations[0].request.speculation.draft_length == 1
    assert shown(opened, "pacing") == "Fixed: 1 draft token a round, as chosen in Settings."


def test_a_report_reaches_state_speed_length_and_sentence(qtbot: QtBot, open_window: OpenWindow) -> None:
    script = [
        STARTED,
        round_finished(0, ["a ", "b "], 2, DrafterKind.model, pacing=ON),
        finished(tokens=3, tokens_per_s=30.0, pacing=ON),
    ]
    opened = open_window(scripts=[script])
    choose(qtbot, opened)
    say(qtbot, opened, "Go")
    finish(qtbot, opened)
    assert shown(opened, "pacing") == "On: usually 4 draft tokens a round."
    assert (shown(opened, "factor"), shown(opened, "factor hint")) == ("1.50×", "faster")
    pacing = opened.window.panel.findChild(QLabel, "pacing")
    assert pacing.accessibleDescription() == (
        "Measured here: a pass of the target over 1 and 4 tokens takes 50.0 and 61.3 ms, a draft token 8.4 ms."
    )
    choose(qtbot, opened, "lookup", None)
    assert shown(opened, "factor") == "–", "another pair was not measured yet"
    assert shown(opened, "pacing") == "Automatic: learned from the rounds of an answer."


def test_pausing_and_going_on_are_said_while_they_last(qtbot: QtBot, open_window: OpenWindow) -> None:
    plain = round_finished(1, ["c "], 0, DrafterKind.none, pacing=PAUSED)
    opened = open_window(scripts=[[STARTED, round_finished(0, ["a ", "b "], 2, DrafterKind.model, pacing=ON), plain]])
    choose(qtbot, opened)
    say(qtbot, opened, "Go")
    qtbot.waitUntil(lambda: shown(opened, "chip") == "Paused")
    assert shown(opened, "sentence") == "Paused: plain is faster here."
    assert opened.window.header.chip.summary.fact == "drafting paused"
    qtbot.waitUntil(lambda: shown(opened, "pacing") == "Automatic: tried again now and then.")
    answer = round_finished(2, ["d ", "e "], 1, DrafterKind.model, request_id=1, pacing=ON)
    opened.engine.emit(answer)
    qtbot.waitUntil(lambda: shown(opened, "chip").startswith("On"))
    assert shown(opened, "sentence") == AHEAD
    opened.session.stop()
    finish(qtbot, opened)
    assert shown(opened, "chip") == "Ready"


def test_another_way_to_draft_does_not_begin_paused(qtbot: QtBot, open_window: OpenWindow) -> None:
    paused = [STARTED, round_finished(0, ["a "], 0, DrafterKind.none, pacing=PAUSED), finished(pacing=PAUSED)]
    opened = open_window(scripts=[paused, [STARTED], [STARTED]])
    choose(qtbot, opened)
    say(qtbot, opened, "Go")
    finish(qtbot, opened)
    say(qtbot, opened, "Go on")  # as the last answer was left
    qtbot.waitUntil(lambda: shown(opened, "chip") == "Paused")
    opened.session.stop()
    finish(qtbot, opened)
    opened.store.settings.draft_length = 3
    say(qtbot, opened, "And now?")
    qtbot.waitUntil(lambda: shown(opened, "chip") == "On, length 3")
    opened.session.stop()
    finish(qtbot, opened)


def test_a_chained_answer_is_coloured_round_by_round(qtbot: QtBot, open_window: OpenWindow) -> None:
    rounds = [
        round_finished(0, ["a ", "b ", "c "], 2, DrafterKind.model),
        round_finished(1, ["d ", "e "], 1, DrafterKind.lookup),
        round_finished(2, ["f "], 0, DrafterKind.none),
    ]
    opened = open_window(scripts=[[STARTED, *rounds, finished(tokens=6)]])
    choose(qtbot, opened)
    say(qtbot, opened, "Go")
    finish(qtbot, opened)
    strip = opened.window.panel.findChild(RoundsStrip)
    assert [[mark for mark, _ in strip.boxes(i)] for i in range(3)] == [
        [Mark.draft, Mark.draft, Mark.bonus],
        [Mark.lookup, Mark.bonus],
        [Mark.plain],
    ]
    assert opened.window.panel.findChild(ByDrafter).isVisible()
    spans = opened.window.transcript.shown()[1].spans
    theme = opened.appearance.theme
    tokens = [theme.source_token(span.source, span.drafter) for span in spans]
    assert tokens == ["draft", "draft", "bonus", "lookup", "bonus", "plain"]


def test_what_was_learned_is_kept_and_comes_back_with_the_pair(
    qtbot: QtBot, open_window: OpenWindow, tmp_path: Path
) -> None:
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    for file in (target, draft):
        file.write_bytes(b"GGUF")
    learned = {"version": 1, "probing": 0.02}
    opened = open_window(scripts=[[STARTED, finished(experience=learned)], [STARTED, finished()]])

    def load(draft: Path | None, context: int = 4096) -> object:
        loads = len(opened.engine.loads)
        opened.session.choose(PairChoice(target, draft, "auto", context))
        qtbot.waitUntil(lambda: opened.session.state is SessionState.idle and len(opened.engine.loads) > loads)
        return opened.engine.loads[-1].experience

    assert load(draft) is None
    say(qtbot, opened, "Go")
    finish(qtbot, opened)
    assert load(None) is None, "of another pair nothing is known"
    assert load(draft, 1024) == learned, "the context length does not matter"
    say(qtbot, opened, "An answer that taught nothing")
    finish(qtbot, opened)
    assert load(None) is None
    assert load(draft) == learned


def test_a_refused_draft_model_leaves_lookup(qtbot: QtBot, open_window: OpenWindow) -> None:
    opened = open_window(answer="Fine.", draft_problem="This draft cannot serve this target.")
    choose(qtbot, opened, "model")
    say(qtbot, opened, "Go")
    finish(qtbot, opened)
    assert opened.engine.generations[0].request.speculation.drafter == "auto"
    assert opened.window.header.chip.summary.fact == "not compatible, lookup instead"


def test_notes_about_the_prompt_stand_below_the_answer(qtbot: QtBot, open_window: OpenWindow) -> None:
    dropped = "The 2 oldest messages no longer fit into the context and were left out."
    started = GenerationStarted(0, 40, 0, DrafterKind.lookup, "On.", (dropped,))
    opened = open_window(scripts=[[started, round_finished(0, ["Fine."], 0, DrafterKind.none), finished(tokens=1)]])
    say(qtbot, opened, "Go")
    finish(qtbot, opened)
    assert opened.window.transcript.shown()[1].notice == dropped
