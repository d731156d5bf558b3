"""The engine with its real worker: answers, stops, dies and comes back."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat import Message, ModelPair, Role
from app.engine import Engine, GenerationRequest, LoadOptions, SamplingParams, SpeculationParams
from app.engine.protocol import (
    EngineDied,
    Event,
    GenerationFinished,
    GenerationStarted,
    LoadFailed,
    PairChecked,
    PairLoaded,
    PromptProgressed,
    RoundFinished,
)
from app.engine.rounds import DrafterKind, StopReason
from app.errors import CancelledError, ContextFullError, EngineDiedError, ModelFileError, UsageError
from tests.support.models import Models

SMALL = LoadOptions(context=512, threads=1)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as running:
        yield running


def request(
    text: str = "Tell a story about a lighthouse keeper.",
    *,
    temperature: float = 0,
    drafter: str = "auto",
    **fields: object,
) -> GenerationRequest:
    return GenerationRequest(
        (Message.of(Role.user, text),),
        SamplingParams(temperature=temperature),
        SpeculationParams(drafter),  # type: ignore[arg-type]
        **{"max_tokens": 24, **fields},  # type: ignore[arg-type]
    )


def finished(events: list[Event]) -> GenerationFinished:
    assert isinstance(events[-1], GenerationFinished)
    assert sum(isinstance(e, GenerationFinished) for e in events) == 1
    return events[-1]


def text_of(events: list[Event]) -> str:
    return "".join(s.text for e in events if isinstance(e, RoundFinished | GenerationFinished) for s in e.spans)


def worker_pid(engine: Engine) -> int:
    assert engine._worker is not None
    return engine._worker.pid


def wait_until(condition, seconds: float = 20) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_a_pair_answers(engine: Engine, models: Models) -> None:
    loaded = engine.load(ModelPair(models.path("smol-q8"), models.path("smol-q4")), SMALL)
    assert loaded.draft and not loaded.draft_problem
    events = list(engine.generate(request()))
    started = events[0]
    assert isinstance(started, GenerationStarted)
    assert started.drafter is DrafterKind.chained
    end = finished(events)
    assert end.stop_reason is StopReason.max_tokens
    assert end.answer_tokens == 24
    tokens = [t for e in events if isinstance(e, RoundFinished) for t in e.round.tokens]
    assert "".join(t.text for t in tokens) == text_of(events)
    assert end.timing.tokens_per_s and end.timing.first_token_s


def test_the_next_turn_reads_only_what_is_new(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("smol-q8"), models.path("smol-q4")), SMALL)
    first = list(engine.generate(request()))
    answer = text_of(first)
    messages = (
        *request().messages,
        Message.of(Role.assistant, answer),
        Message.of(Role.user, "And then?"),
    )
    second = finished(list(engine.generate(GenerationRequest(messages, SamplingParams(temperature=0), max_tokens=4))))
    assert second.prompt_tokens - second.reused_tokens <= 20


@pytest.mark.parametrize("moment", ["prompt", "answer"])
def test_cancelling(engine: Engine, models: Models, moment: str) -> None:
    engine.load(ModelPair(models.path("smol-q8")), LoadOptions(context=4096, threads=1))
    long = request("word " * 3000 if moment == "prompt" else "Count.", max_tokens=None)
    wanted = PromptProgressed if moment == "prompt" else RoundFinished
    events = []
    for event in engine.generate(long):
        events.append(event)
        if isinstance(event, wanted) and len(events) == 3:
            engine.cancel()
    assert finished(events).stop_reason is StopReason.cancelled
    assert finished(list(engine.generate(request(max_tokens=3)))).stop_reason is StopReason.max_tokens


def test_leaving_the_loop_cancels(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("smol-q8")), SMALL)
    ends: list[Event] = []
    engine.subscribe(lambda e: ends.append(e) if isinstance(e, GenerationFinished) else None)
    for event in engine.generate(request(max_tokens=None)):
        if isinstance(event, RoundFinished):
            break
    wait_until(lambda: ends)
    assert ends[0].stop_reason is StopReason.cancelled  # type: ignore[union-attr]


def test_a_load_can_be_cancelled(engine: Engine, models: Models) -> None:
    threading.Timer(0.05, engine.cancel).start()
    with pytest.raises(CancelledError):
        engine.load(ModelPair(models.path("deep-q8")), SMALL)
    engine.load(ModelPair(models.path("tiny-small")), SMALL)


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_worker_killed_in_an_answer_is_replaced(engine: Engine, models: Models, kill: signal.Signals) -> None:
    engine.load(ModelPair(models.path("smol-q8"), models.path("smol-q4")), SMALL)
    seen: list[Event] = []
    engine.subscribe(seen.append)
    events: list[Event] = []
    for event in engine.generate(request(max_tokens=None)):
        events.append(event)
        if isinstance(event, RoundFinished) and event.round.number == 5:
            os.kill(worker_pid(engine), kill)
    end = finished(events)
    assert end.stop_reason is StopReason.failed
    assert end.error and isinstance(end.error.to_error(), EngineDiedError)
    assert text_of(events)
    wait_until(lambda: any(isinstance(e, EngineDied) for e in seen))
    died = next(e for e in seen if isinstance(e, EngineDied))
    assert died.restarting
    assert died.sentence == end.error.sentence
    # The next message needs nobody's help.
    again = list(engine.generate(request()))
    assert finished(again).stop_reason is StopReason.max_tokens
    assert any(isinstance(e, PairLoaded) and e.draft for e in seen[seen.index(died) :])


def test_a_worker_killed_while_idle_is_replaced(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("tiny-small")), SMALL)
    os.kill(worker_pid(engine), signal.SIGKILL)
    assert finished(list(engine.generate(request(max_tokens=3)))).stop_reason in (
        StopReason.max_tokens,
        StopReason.end_of_turn,
    )


def test_a_worker_that_keeps_dying_is_left_alone_until_asked(models: Models) -> None:
    """A load that kills the worker is not tried again by itself, and every attempt is answered."""
    script = "import sys; sys.stdin.readline(); import os; os.abort()"
    with Engine([sys.executable, "-c", script]) as engine:
        seen: list[Event] = []
        engine.subscribe(seen.append)
        with pytest.raises(EngineDiedError):
            engine.load(ModelPair(models.path("tiny-small")), SMALL)
        wait_until(lambda: any(isinstance(e, EngineDied) for e in seen))
        assert [e.restarting for e in seen if isinstance(e, EngineDied)] == [False]
        assert finished(list(engine.generate(request()))).stop_reason is StopReason.failed


def test_the_last_words_of_an_aborting_worker_arrive(models: Models) -> None:
    script = (
        "import ctypes, sys\n"
        "from app.engine import llama, worker\n"
        "get = llama._ggml('ggml_backend_dev_get', ctypes.c_void_p, [ctypes.c_size_t])\n"
        "worker.Worker._load = lambda self, command: get(999)\n"
        "sys.exit(worker.main())"
    )
    with (
        Engine([sys.executable, "-c", script]) as engine,
        pytest.raises(EngineDiedError, match="GGML_ASSERT") as caught,
    ):
        engine.load(ModelPair(models.path("tiny-small")), SMALL)
    assert "/" not in str(caught.value)


def test_a_worker_of_another_version_is_not_talked_to(models: Models) -> None:
    hello = '{"type":"WorkerStarted","body":{"protocol":999,"llama_cpp":"9","pid":1}}'
    script = f"import sys, time; print({hello!r}, flush=True); time.sleep(60)"
    with Engine([sys.executable, "-c", script]) as engine, pytest.raises(EngineDiedError, match="another version"):
        engine.load(ModelPair(models.path("tiny-small")), SMALL)


def test_a_program_that_is_not_a_worker(models: Models) -> None:
    with Engine([sys.executable, "-c", "print('hello')"]) as engine, pytest.raises(EngineDiedError):
        engine.load(ModelPair(models.path("tiny-small")), SMALL)


def test_a_program_that_is_not_there(models: Models, tmp_path: Path) -> None:
    with Engine([str(tmp_path / "nothing")]) as engine:
        with pytest.raises(EngineDiedError, match="could not be started"):
            engine.load(ModelPair(models.path("tiny-small")), SMALL)
        assert "could not be started" in engine.check(ModelPair(models.path("tiny-small"))).reason
        assert finished(list(engine.generate(request()))).stop_reason is StopReason.failed


@pytest.mark.parametrize(
    "name",
    ["broken-truncated", "broken-header", "broken-text", "broken-mmproj", "broken-version", "embedding-model", "empty"],
)
def test_a_file_that_is_no_model_is_refused_and_the_next_load_works(engine: Engine, models: Models, name: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        engine.load(ModelPair(models.path(name)), SMALL)
    assert name in str(caught.value)
    engine.load(ModelPair(models.path("tiny-small")), SMALL)
    assert finished(list(engine.generate(request(max_tokens=3)))).error is None


@pytest.mark.parametrize(
    ("draft", "named"),
    [
        ("broken-truncated", "damaged"),
        ("broken-text", "not a GGUF"),
    ],
)
def test_a_draft_that_cannot_serve_leaves_the_target_usable(
    engine: Engine, models: Models, draft: str, named: str
) -> None:
    loaded = engine.load(ModelPair(models.path("smol-q8"), models.path(draft)), SMALL)
    assert loaded.draft is None
    assert loaded.draft_problem and named in loaded.draft_problem
    events = list(engine.generate(request(drafter="model")))
    started = events[0]
    assert isinstance(started, GenerationStarted)
    assert started.drafter is DrafterKind.none
    assert named in started.drafter_reason
    assert finished(events).error is None


def test_another_draft_does_not_load_the_target_again(engine: Engine, models: Models) -> None:
    progress: list[str] = []
    engine.load(ModelPair(models.path("smol-q8"), models.path("smol-q4")), SMALL)
    engine.subscribe(lambda e: progress.append(e.part) if type(e).__name__ == "LoadProgressed" else None)  # type: ignore[union-attr]
    engine.load(ModelPair(models.path("smol-q8"), models.path("smol-q2")), SMALL)
    assert set(progress) == {"draft"}


def test_a_pair_is_checked_while_an_answer_is_written(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("smol-q8")), SMALL)
    order: list[str] = []
    engine.subscribe(lambda e: order.append(type(e).__name__))
    for event in engine.generate(request(max_tokens=None)):
        if isinstance(event, RoundFinished) and event.round.number == 1:
            engine.request_check(ModelPair(models.path("smol-q8"), models.path("tiny-other")))
        if "PairChecked" in order:
            engine.cancel()
    assert "PairChecked" in order
    assert order.index("PairChecked") < order.index("GenerationFinished")


@pytest.mark.parametrize(
    ("target", "draft", "fits", "named"),
    [
        ("smol-q8", "smol-q4", True, "49,152"),
        ("smol-q8", "tiny-bigger", True, "100 padded"),
        ("smol-q8", "tiny-other", True, "token 49000"),
        ("smol-q8", "broken-text", False, "not a GGUF"),
        ("broken-mmproj", None, False, "projector"),
        ("smol-q8", None, True, "can be used"),
    ],
)
def test_checks(engine: Engine, models: Models, target: str, draft: str | None, fits: bool, named: str) -> None:
    checked = engine.check(ModelPair(models.path(target), models.path(draft) if draft else None))
    assert isinstance(checked, PairChecked)
    assert checked.fits is fits
    assert named in checked.reason


def test_a_prompt_longer_than_the_context(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("smol-q8")), SMALL)
    end = finished(list(engine.generate(request("word " * 2000))))
    assert end.stop_reason is StopReason.failed
    assert end.error
    assert isinstance(end.error.to_error(), ContextFullError)
    assert "512" in end.error.sentence
    assert finished(list(engine.generate(request()))).error is None


@pytest.mark.parametrize("name", ["broken-template", "template-syntax"])
def test_a_template_that_raises_is_said_and_the_message_answered(engine: Engine, models: Models, name: str) -> None:
    engine.load(ModelPair(models.path(name)), SMALL)
    events = list(engine.generate(request(max_tokens=3)))
    started = events[0]
    assert isinstance(started, GenerationStarted)
    assert any("template" in note for note in started.notes)
    assert finished(events).error is None


def test_settings_out_of_range_are_refused(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("tiny-small")), SMALL)
    end = finished(list(engine.generate(request(temperature=-1))))
    assert end.error and isinstance(end.error.to_error(), UsageError)


def test_without_a_model_there_is_a_sentence(engine: Engine) -> None:
    end = finished(list(engine.generate(request())))
    assert end.error and "No model is loaded" in end.error.sentence


def test_a_seed_repeats_and_no_seed_does_not(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("smol-q8"), models.path("smol-q4")), SMALL)

    def ask(seed: int | None) -> tuple[str, int]:
        events = list(
            engine.generate(
                GenerationRequest(request().messages, SamplingParams(temperature=1.0, seed=seed), max_tokens=24)
            )
        )
        return text_of(events), finished(events).seed

    _, used = ask(None)
    assert ask(None)[1] != used
    assert ask(used) == ask(used)


def test_a_stop_string_ends_the_answer_before_itself(engine: Engine, models: Models) -> None:
    engine.load(ModelPair(models.path("smol-q8"), models.path("smol-q4")), SMALL)
    whole = text_of(list(engine.generate(request())))
    stop = whole[40:46]
    events = list(engine.generate(request(stop=(stop,))))
    assert finished(events).stop_reason is StopReason.stop_string
    assert text_of(events) == whole[: whole.index(stop)]


def test_the_worker_ends_with_its_front_end(models: Models) -> None:
    engine = Engine()
    engine.load(ModelPair(models.path("tiny-small")), SMALL)
    process = engine._worker._process  # type: ignore[union-attr]
    engine.close()
    assert process.poll() == 0


def test_closing_in_the_middle_of_everything_is_quick_and_clean(models: Models) -> None:
    for moment in (0.0, 0.05, 0.3, 0.8):
        engine = Engine()
        engine.request_load(ModelPair(models.path("smol-q8"), models.path("smol-q4")), SMALL)
        engine.request_generation(request(max_tokens=None))
        time.sleep(moment)
        worker = engine._worker
        engine.close()
        if worker is not None:
            assert worker._process.poll() is not None


def test_a_failing_listener_disturbs_nobody(engine: Engine, models: Models) -> None:
    def fail(event: Event) -> None:
        raise RuntimeError("mine")

    engine.subscribe(fail)
    engine.load(ModelPair(models.path("tiny-small")), SMALL)


def test_a_failed_load_answers_with_an_event_too(engine: Engine, models: Models) -> None:
    seen: list[Event] = []
    engine.subscribe(seen.append)
    with pytest.raises(ModelFileError):
        engine.load(ModelPair(models.path("broken-text")), SMALL)
    assert [type(e) for e in seen if isinstance(e, LoadFailed)] == [LoadFailed]


@pytest.mark.parametrize("name", ["broken-truncated", "broken-text", "broken-mmproj", "embedding-model"])
def test_a_refused_target_costs_nothing_that_is_loaded(engine: Engine, models: Models, name: str) -> None:
    engine.load(ModelPair(models.path("smol-q8"), models.path("smol-q4")), SMALL)
    failures: list[LoadFailed] = []
    engine.subscribe(lambda e: failures.append(e) if isinstance(e, LoadFailed) else None)
    with pytest.raises(ModelFileError):
        engine.load(ModelPair(models.path(name)), SMALL)
    assert [failure.kept for failure in failures] == [True]
    events = list(engine.generate(request()))
    assert isinstance(events[0], GenerationStarted)
    assert events[0].drafter is DrafterKind.chained
    # And it is what comes back after a crash.
    os.kill(worker_pid(engine), signal.SIGKILL)
    assert finished(list(engine.generate(request(max_tokens=2)))).error is None
