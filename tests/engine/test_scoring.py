"""The target's word on the next token, through the real worker."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from app.chat import Message, ModelPair, Role
from app.engine import Engine, GenerationRequest, LoadOptions, SamplingParams, SpeculationParams
from app.engine.protocol import RoundFinished
from app.errors import EngineDiedError, UsageError
from tests.support.models import Models

MESSAGES = (Message.of(Role.user, "Name three colours."),)
TOKENS = 24


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as running:
        yield running


def greedy(engine: Engine) -> list[int]:
    request = GenerationRequest(MESSAGES, SamplingParams(temperature=0), SpeculationParams("none"), TOKENS)
    return [t.id for e in engine.generate(request) if isinstance(e, RoundFinished) for t in e.round.tokens]


def test_the_best_token_is_the_one_greedy_decoding_takes(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("smol-q8")), LoadOptions(context=512, threads=1))
    answer = greedy(engine)
    for position in (0, 1, 7, len(answer) - 1):
        best, second = engine.score_next(MESSAGES, answer[:position], TOKENS).best
        assert best.id == answer[position]
        assert best.logit > second.logit
        assert best.text
    assert greedy(engine) == answer, "a question in between must not change an answer"


def test_without_a_model_there_is_nothing_to_score(engine: Engine) -> None:
    with pytest.raises(UsageError):
        engine.score_next(MESSAGES, [])


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_worker_that_dies_answers_too(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("tiny-small")), LoadOptions(context=512, threads=1))
    assert engine._worker is not None
    os.kill(engine._worker.pid, signal.SIGSTOP)  # so that the question is surely under way when it dies
    asked = engine.request_score(MESSAGES, [])
    with engine._events() as events:
        os.kill(engine._worker.pid, signal.SIGKILL)
        scored = next(event for event in events if getattr(event, "request_id", None) == asked)
    assert isinstance(scored.error.to_error(), EngineDiedError)  # type: ignore[union-attr]
    assert engine.score_next(MESSAGES, []).best, "the models come back for the next question"
