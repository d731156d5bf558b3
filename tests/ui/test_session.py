"""The state machine against an engine without models: one answer at a time, nothing lost, nothing in the wrong chat."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from app.chat import ModelPair, Role
from app.engine.protocol import EngineDied, Fault, GenerationStarted, SpeculationParams, VerifyRule
from app.engine.rounds import DrafterKind, Span, StopReason, TokenSource
from app.errors import ContextFullError, ModelFileError
from app.storage.experiences import ExperienceStore
from app.storage.settings import Settings
from app.ui import wording
from app.ui.chats import PairChoice, Problem, ProblemKind, SessionState
from app.ui.session import Session
from tests.support.fake_engine import CRASH, FakeEngine, finished, round_finished

LOOKUP = PairChoice(Path("/models/target.gguf"), None, "lookup", 2048)
WITH_DRAFT = PairChoice(Path("/models/target.gguf"), Path("/models/draft.gguf"), "model", 2048)
STARTED = GenerationStarted(0, 40, 0, DrafterKind.lookup, "Drafting by lookup.")

Make = Callable[..., tuple[FakeEngine, Session]]


@pytest.fixture
def make(qtbot: QtBot) -> Iterator[Make]:
    """`make(settings=…, experiences=…, **arguments of FakeEngine)`: an engine and a session without a pair."""
    made: list[tuple[FakeEngine, Session]] = []

    def build(
        *, settings: Settings | None = None, experiences: ExperienceStore | None = None, **arguments: Any
    ) -> tuple[FakeEngine, Session]:
        engine = FakeEngine(**arguments)
        session = Session(engine, settings or Settings(), experiences)
        made.append((engine, session))
        return engine, session

    yield build
    for engine, session in made:
        session.close()
        engine.close()
        session.deleteLater()


def wait_for(qtbot: QtBot, session: Session, *states: SessionState) -> None:
    qtbot.waitUntil(lambda: session.state in states, timeout=20_000)


def load(qtbot: QtBot, session: Session, choice: PairChoice = LOOKUP) -> None:
    session.choose(choice)
    wait_for(qtbot, session, SessionState.idle)


def ask(qtbot: QtBot, session: Session, text: str) -> None:
    assert session.send(text)
    wait_for(qtbot, session, SessionState.idle)


def texts(session: Session) -> list[tuple[str, str]]:
    return [(message.role.value, message.text) for message in session.current.conversation.messages]


def test_nothing_is_sent_without_a_pair(make: Make) -> None:
    engine, session = make()
    assert session.state is SessionState.no_model
    assert not session.send("hello")
    assert not engine.generations
    assert session.current.shown == []


def test_an_answer_arrives_whole_with_its_footer(qtbot: QtBot, make: Make) -> None:
    engine, session = make(tokens_per_s=2000.0)
    load(qtbot, session)
    arrived: list[Span] = []
    footers: list[tuple[str, str]] = []
    session.spans_arrived.connect(arrived.extend)
    session.answer_finished.connect(lambda footer, notice: footers.append((footer, notice)))
    ask(qtbot, session, "Write a short\nstory about a lighthouse keeper and the small boats of the bay.")
    shown = session.current.shown[-1]
    assert shown.text == engine.answer == "".join(span.text for span in arrived)
    assert shown.footer.startswith("2000.0 tok/s · ")
    assert "% of draft tokens accepted" in shown.footer
    assert footers == [(shown.footer, "")]
    assert session.current.title == "Write a short story about a lighthouse keeper and the small…"
    assert session.current.context_used > 40
    assert session.context == 2048


def test_what_is_unknown_is_left_out_of_the_footer(qtbot: QtBot, make: Make) -> None:
    script = [STARTED, round_finished(0, ["Yes"], 0), finished(tokens=1)]
    _, session = make(scripts=[script])
    load(qtbot, session)
    ask(qtbot, session, "Yes?")
    assert session.current.shown[-1].footer == "1 token"


def test_a_request_carries_settings_drafting_and_the_whole_conversation(qtbot: QtBot, make: Make) -> None:
    settings = Settings(temperature=0.2, top_k=5, seed=11, max_tokens=64, system_prompt="Be brief.", draft_length=4)
    engine, session = make(settings=settings, answer="Fine.")
    load(qtbot, session, WITH_DRAFT)
    ask(qtbot, session, "One")
    settings.system_prompt = ""
    ask(qtbot, session, "Two")
    first, second = (generation.request for generation in engine.generations)
    assert [(m.role, m.text) for m in first.messages] == [(Role.system, "Be brief."), (Role.user, "One")]
    assert [m.text for m in second.messages] == ["One", "Fine.", "Two"]
    assert (first.sampling.temperature, first.sampling.top_k, first.sampling.seed) == (0.2, 5, 11)
    assert first.max_tokens == 64
    assert first.speculation == SpeculationParams("model", 4, VerifyRule.rejection)
    assert engine.loads[0].pair == ModelPair(WITH_DRAFT.target, WITH_DRAFT.draft)
    assert engine.loads[0].options.context == 2048


def test_a_stopped_answer_keeps_its_text(qtbot: QtBot, make: Make) -> None:
    engine, session = make(scripts=[[STARTED, round_finished(0, ["Half ", "an "], 2)]])
    load(qtbot, session)
    session.send("Tell me")
    qtbot.waitUntil(lambda: bool(session.open_answer and session.open_answer.spans), timeout=5000)
    session.stop()
    assert session.state is SessionState.stopping
    wait_for(qtbot, session, SessionState.idle)
    assert texts(session) == [("user", "Tell me"), ("assistant", "Half an ")]
    assert session.current.shown[-1].notice == "Stopped"
    ask(qtbot, session, "Go on")
    assert [m.text for m in engine.generations[-1].request.messages] == ["Tell me", "Half an ", "Go on"]


def test_turns_alternate_after_an_answer_that_was_stopped_before_its_first_word(qtbot: QtBot, make: Make) -> None:
    engine, session = make(scripts=[[STARTED]])
    load(qtbot, session)
    session.send("One")
    session.stop()
    wait_for(qtbot, session, SessionState.idle)
    ask(qtbot, session, "Two")
    assert [m.text for m in engine.generations[-1].request.messages] == ["One\n\nTwo"]


def test_a_message_too_long_for_the_context_does_not_block_the_next(qtbot: QtBot, make: Make) -> None:
    fault = Fault.of(ContextFullError("The message needs 9,000 tokens; the context has 2,048."))
    engine, session = make(scripts=[[finished(reason=StopReason.failed, error=fault)]])
    load(qtbot, session)
    ask(qtbot, session, "long " * 9000)
    assert "9,000 tokens" in session.current.shown[-1].notice
    ask(qtbot, session, "short")
    assert [m.text for m in engine.generations[-1].request.messages] == ["short"]


def test_late_and_foreign_events_are_dropped(qtbot: QtBot, make: Make) -> None:
    engine, session = make(answer="Fine.")
    load(qtbot, session)
    ask(qtbot, session, "One")
    before = list(session.current.shown)
    engine.emit(round_finished(9, ["late"], 0, request_id=1))
    engine.emit(finished(1, StopReason.cancelled))
    engine.emit(replace(STARTED, request_id=77))
    qtbot.wait(80)
    assert session.current.shown == before
    assert session.state is SessionState.idle
    ask(qtbot, session, "Two")
    assert session.current.shown[-1].text == "Fine."


def test_an_answer_goes_on_in_its_own_chat(qtbot: QtBot, make: Make) -> None:
    def second_half(fake: FakeEngine, request_id: int) -> None:
        gate.wait(20)
        fake.emit(round_finished(1, ["second"], 0, request_id=request_id))

    gate = threading.Event()
    engine, session = make(scripts=[[STARTED, round_finished(0, ["first "], 0), second_half, finished(tokens=2)]])
    load(qtbot, session)
    first = session.current
    session.send("A")
    qtbot.waitUntil(lambda: bool(session.open_answer and session.open_answer.spans), timeout=5000)
    session.new_chat()
    second = session.current
    assert second is not first
    assert session.open_answer is None
    foreign: list[Span] = []
    session.spans_arrived.connect(foreign.extend)
    assert not session.send("B"), "one answer at a time, in whatever chat"
    gate.set()
    wait_for(qtbot, session, SessionState.idle)
    assert foreign == []
    assert second.shown == []
    assert first.shown[-1].text == "first second"
    assert len(engine.generations) == 1
    session.show_chat(first.id)
    assert session.current is first


def test_an_empty_chat_is_not_made_twice(qtbot: QtBot, make: Make) -> None:
    _, session = make(answer="Fine.")
    load(qtbot, session)
    session.new_chat()
    assert len(session.chats) == 1
    ask(qtbot, session, "One")
    session.new_chat()
    session.new_chat()
    assert [chat.title for chat in session.chats] == ["New chat", "One"]


@pytest.mark.parametrize("restarting", [False, True])
def test_a_died_engine_keeps_the_text_and_the_next_message_works(qtbot: QtBot, make: Make, restarting: bool) -> None:
    engine, session = make(scripts=[[STARTED, round_finished(0, ["Half "], 0)]])
    load(qtbot, session)
    problems: list[Problem] = []
    session.problem_raised.connect(problems.append)
    session.send("Tell me")
    qtbot.waitUntil(lambda: bool(session.open_answer and session.open_answer.spans), timeout=5000)
    engine.die(restarting=restarting)
    wait_for(qtbot, session, SessionState.idle if restarting else SessionState.dead)
    assert session.current.shown[-1].text == "Half "
    assert CRASH in session.current.shown[-1].notice
    sentence = f"{CRASH} {wording.RESTARTING}" if restarting else CRASH
    assert [(p.sentence, p.can_restart) for p in problems] == [(sentence, not restarting)]
    ask(qtbot, session, "Again")
    assert session.current.shown[-1].text == engine.answer
    assert session.loaded is not None


def test_a_message_that_a_dying_engine_had_not_read_is_answered_by_the_next(qtbot: QtBot, make: Make) -> None:
    died = EngineDied(CRASH, restarting=True, exit_status=-9)

    def load_again(engine: FakeEngine, _request_id: int) -> None:
        engine.emit(engine._loaded(engine.loads[-1]))

    engine, session = make(scripts=[[died, load_again, STARTED, round_finished(0, ["After "], 0), finished()]])
    load(qtbot, session)
    ask(qtbot, session, "Tell me")
    assert session.current.shown[-1].text == "After "
    assert session.current.shown[-1].notice == ""
    assert len(engine.generations) == 1


def test_the_engine_can_be_started_again_by_hand(qtbot: QtBot, make: Make) -> None:
    engine, session = make()
    load(qtbot, session)
    engine.die()
    wait_for(qtbot, session, SessionState.dead)
    session.restart()
    wait_for(qtbot, session, SessionState.idle)
    assert len(engine.loads) == 2


def test_a_failed_load_says_why(qtbot: QtBot, make: Make) -> None:
    engine, session = make()
    engine.load_fault = ModelFileError("target.gguf is not a GGUF file.")
    problems: list[Problem] = []
    session.problem_raised.connect(problems.append)
    session.choose(LOOKUP)
    qtbot.waitUntil(lambda: bool(problems), timeout=5000)
    assert session.state is SessionState.no_model
    assert problems[0].sentence == "target.gguf is not a GGUF file."
    assert not session.can_send


def test_a_stopped_load_can_be_taken_up_again(qtbot: QtBot, make: Make) -> None:
    engine, session = make(load_s=30.0)
    problems: list[Problem] = []
    session.problem_raised.connect(problems.append)
    session.choose(LOOKUP)
    session.stop()
    qtbot.waitUntil(lambda: bool(problems), timeout=5000)
    assert session.state is SessionState.no_model
    assert problems == [Problem(ProblemKind.info, "Loading was stopped.", can_restart=True)]
    engine.load_s = 0.0
    session.restart()
    wait_for(qtbot, session, SessionState.idle)


def test_a_pair_chosen_during_an_answer_is_loaded_after_it_was_stopped(qtbot: QtBot, make: Make) -> None:
    engine, session = make(scripts=[[STARTED, round_finished(0, ["Half "], 0)]])
    load(qtbot, session)
    session.send("Tell me")
    qtbot.waitUntil(lambda: bool(session.open_answer and session.open_answer.spans), timeout=5000)
    session.choose(WITH_DRAFT)
    qtbot.waitUntil(lambda: len(engine.loads) == 2, timeout=5000)
    wait_for(qtbot, session, SessionState.idle)
    assert session.choice == WITH_DRAFT
    assert session.current.shown[-1].text == "Half "
    assert engine.loads[-1].pair.draft == WITH_DRAFT.draft


def test_a_pair_chosen_during_a_load_replaces_it(qtbot: QtBot, make: Make) -> None:
    engine, session = make(load_s=30.0)
    session.choose(LOOKUP)
    session.choose(WITH_DRAFT)
    qtbot.waitUntil(lambda: len(engine.loads) == 2, timeout=5000)
    engine.load_s = 0.0
    session.choose(replace(WITH_DRAFT, context=512))
    wait_for(qtbot, session, SessionState.idle)
    assert session.context == 512


def test_another_way_to_draft_needs_no_load(qtbot: QtBot, make: Make) -> None:
    engine, session = make(answer="Fine.")
    load(qtbot, session)
    session.choose(replace(LOOKUP, drafter="none"))
    assert session.state is SessionState.idle
    ask(qtbot, session, "One")
    assert len(engine.loads) == 1
    assert engine.generations[-1].request.speculation.drafter == "none"


def test_a_draft_that_does_not_fit_is_said_and_the_target_answers(qtbot: QtBot, make: Make) -> None:
    engine, session = make(answer="Fine.", draft_problem="The draft's vocabulary differs from token 5 on.")
    problems: list[Problem] = []
    session.problem_raised.connect(problems.append)
    load(qtbot, session, WITH_DRAFT)
    assert [p.sentence for p in problems] == [engine.draft_problem]
    ask(qtbot, session, "One")
    assert session.current.shown[-1].text == "Fine."


def test_reasoning_is_kept_apart(qtbot: QtBot, make: Make) -> None:
    thought = replace(
        round_finished(0, ["hm"], 0), spans=(Span("hm", TokenSource.plain, DrafterKind.none, is_reasoning=True),)
    )
    engine, session = make(scripts=[[STARTED, thought, round_finished(1, ["Yes."], 0), finished(tokens=2)]])
    load(qtbot, session)
    ask(qtbot, session, "Sure?")
    shown = session.current.shown[-1]
    assert (shown.reasoning, shown.text) == ("hm", "Yes.")
    assert shown.reasoning_s is not None
    assert session.current.conversation.messages[-1].reasoning == "hm"
    assert engine.generations


@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_actions_ends_idle_with_every_text_in_its_chat(qtbot: QtBot, make: Make, seed: int) -> None:
    """STP-04: actions in any order and at any moment, checked after each of them."""
    chance = random.Random(seed)
    engine, session = make(tokens_per_s=3000.0, load_s=0.002)
    load(qtbot, session)
    sent: dict[int, list[str]] = {}

    def send() -> None:
        text = f"message {len(engine.generations)} of chat {session.current.id}"
        could = session.can_send
        assert session.send(text) is could
        if could:
            sent.setdefault(session.current.id, []).append(text)

    actions: list[Callable[[], object]] = [
        send,
        send,
        session.stop,
        session.new_chat,
        lambda: session.show_chat(chance.choice(session.chats).id),
        lambda: session.choose(chance.choice((LOOKUP, WITH_DRAFT, replace(LOOKUP, context=512)))),
        lambda: engine.emit(round_finished(0, ["late"], 0, request_id=len(engine.generations) - session.is_answering)),
        lambda: qtbot.wait(chance.randint(1, 30)),
    ]
    for step in range(300):
        chance.choice(actions)()
        assert engine.overlaps == 0, f"step {step}: two answers at once"
        assert session.is_answering == (session.state in (SessionState.answering, SessionState.stopping))
        assert session.can_send == (session.state is SessionState.idle)
        if step % 75 == 74 and session.state is not SessionState.loading:
            engine.die(restarting=True)
    session.stop()
    wait_for(qtbot, session, SessionState.idle, SessionState.no_model)
    load(qtbot, session, replace(LOOKUP, context=1024))
    ask(qtbot, session, "the last one")

    for chat in session.chats:
        users = [m.text for m in chat.shown if m.role is Role.user and m.text != "the last one"]
        assert users == sent.get(chat.id, [])
        assert [m.role for m in chat.shown] == [Role.user, Role.assistant] * (len(chat.shown) // 2)
        assert all("late" not in m.text for m in chat.shown)
        assert all(engine.answer.startswith(m.text) for m in chat.shown if m.role is Role.assistant)
