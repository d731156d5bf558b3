"""Conversations with the real engine: a turn reads only what is new, and a full context does not end them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.chat import Message, ModelPair, Role
from app.engine import Engine, GenerationRequest, LoadOptions, SamplingParams, SpeculationParams
from app.engine.protocol import GenerationFinished, GenerationStarted, RoundFinished
from app.engine.rounds import StopReason
from tests.support.models import Models


class Talk:
    """A conversation with a loaded engine."""

    def __init__(self, engine: Engine, *, temperature: float = 0.0, system: str = "") -> None:
        self.messages = [Message.of(Role.system, system)] if system else []
        self._engine = engine
        self._temperature = temperature
        self.notes: tuple[str, ...] = ()

    def ask(self, question: str, *, max_tokens: int | None = 12) -> GenerationFinished:
        self.messages.append(Message.of(Role.user, question))
        return self.answer(max_tokens=max_tokens)

    def answer(self, *, max_tokens: int | None = 12) -> GenerationFinished:
        """The answer to the last message, which joins the conversation as the window would put it there."""
        request = GenerationRequest(
            tuple(self.messages),
            SamplingParams(temperature=self._temperature, top_k=0, top_p=1, min_p=0, seed=len(self.messages)),
            SpeculationParams("lookup"),
            max_tokens=max_tokens,
        )
        text = ""
        for event in self._engine.generate(request):
            if isinstance(event, GenerationStarted):
                self.notes = event.notes
            if isinstance(event, RoundFinished | GenerationFinished):
                text += "".join(span.text for span in event.spans)
        assert isinstance(event, GenerationFinished)
        assert event.error is None, event.error
        self.messages.append(Message.of(Role.assistant, text))
        return event


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as running:
        yield running


def load(engine: Engine, models: Models, name: str, context: int) -> None:
    engine.load(ModelPair(models.path(name)), LoadOptions(context=context, threads=1))


@pytest.mark.parametrize(
    ("temperature", "system"),
    # At 2.0 without filters a model writes tokens that no tokenizer would choose for its text.
    [(0.0, "Answer in one sentence."), (2.0, "")],
    ids=["greedy", "wild"],
)
def test_ten_turns_each_read_only_what_is_new(engine: Engine, models: Models, temperature: float, system: str) -> None:
    load(engine, models, "smol-q4", 2048)
    talk = Talk(engine, temperature=temperature, system=system)
    held = 0
    for turn in range(10):
        end = talk.ask(f"Question {turn}: what is a lighthouse?")
        assert end.reused_tokens == held
        assert turn == 0 or end.prompt_tokens - held < 30
        held = end.prompt_tokens + end.answer_tokens - 1  # the last token is drawn, and not evaluated yet
    assert talk.notes == ()


def test_asking_again_and_asking_otherwise_reuse_what_is_in_common(engine: Engine, models: Models) -> None:
    load(engine, models, "smol-q4", 2048)
    talk = Talk(engine, temperature=2.0)
    first = talk.ask("Name a sea.")
    second = talk.ask("Name a ship.")
    talk.messages.pop()
    again = talk.answer()
    assert again.prompt_tokens == second.prompt_tokens
    assert again.reused_tokens == second.prompt_tokens - 1  # the last is evaluated for what follows it
    del talk.messages[2:]
    edited = talk.ask("Tell me a joke.")
    assert edited.reused_tokens >= first.prompt_tokens + first.answer_tokens - 1
    del talk.messages[:]
    unlike = talk.ask("Good morning!")
    assert unlike.reused_tokens < first.prompt_tokens


def test_a_conversation_longer_than_the_context_goes_on(engine: Engine, models: Models) -> None:
    load(engine, models, "tiny-small", 512)
    talk = Talk(engine, temperature=1.0, system="Be brief.")
    reused_most = 0
    steps = set()
    for turn in range(30):
        end = talk.ask(f"and {turn}?", max_tokens=8)
        assert end.answer_tokens == 8
        assert end.prompt_tokens + end.answer_tokens <= 512
        reused_most += end.reused_tokens > end.prompt_tokens / 2
        steps.update(talk.notes)
    assert reused_most >= 25
    assert 1 < len(steps) < 5  # the sentence that says so is another only where more was left out


def test_an_answer_ends_with_the_context(engine: Engine, models: Models) -> None:
    """CTX-02: a model that never ends its answer, and a limit far beyond the context."""
    load(engine, models, "tiny-small", 256)
    for limit in (None, 100_000):
        talk = Talk(engine, temperature=1.0)
        end = talk.ask("Go on for ever.", max_tokens=limit)
        assert end.stop_reason is StopReason.context_full
        assert end.prompt_tokens + end.answer_tokens == 256 + 1  # the last token needs no place of its own
    # The engine is idle again, and the conversation can go on: what it was about is still sent.
    following = talk.ask("Stop.", max_tokens=4)
    assert following.answer_tokens == 4
