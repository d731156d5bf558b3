"""The order of a benchmark's answers, and how their speeds are paired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from app.engine.benchmark import LEAST_TOKENS, BenchPrompt, Mode, Results, Run, Settings, Step, record, schedule
from app.engine.protocol import Fault
from app.engine.rounds import StopReason
from app.errors import ContextFullError
from tests.support.fake_engine import finished, round_finished

PROMPTS = [BenchPrompt("a", "prose", "A?"), BenchPrompt("b", "code", "B?"), BenchPrompt("c", "prose", "C?")]
PLAIN, MODEL, AUTO = Mode.named("plain"), Mode.named("model"), Mode.named("auto")


def run(mode: Mode, speed: float | None, prompt: int = 0, turn: int = 0, tokens: int = 96) -> Run:
    return Run(Step(turn, PROMPTS[prompt], mode), (), tokens, speed)


def test_modes_take_turns_and_none_is_always_first() -> None:
    modes = [PLAIN, MODEL, AUTO]
    steps = list(schedule(PROMPTS, modes, repeat=2))
    assert Counter((s.turn, s.prompt.name, s.mode.name) for s in steps) == {
        (turn, prompt.name, mode.name): 1 for turn in range(2) for prompt in PROMPTS for mode in modes
    }
    groups = [steps[i : i + 3] for i in range(0, len(steps), 3)]
    assert all(len({step.prompt for step in group}) == 1 for group in groups)
    assert Counter(group[0].mode.name for group in groups) == {"plain": 2, "model": 2, "auto": 2}


def test_probes_run_in_the_first_turn_only() -> None:
    probe = Mode.probe(4, has_draft=True)
    steps = list(schedule(PROMPTS, [PLAIN, probe], repeat=3))
    assert {step.turn for step in steps if step.mode == probe} == {0}
    assert sum(step.mode == PLAIN for step in steps) == 9


def test_a_request_says_what_its_mode_means() -> None:
    settings = Settings(temperature=0.5, max_tokens=20, seed=7)
    plain = settings.request(PROMPTS[0], PLAIN)
    assert (plain.speculation.drafter, plain.speculation.draft_length) == ("none", None)
    probe = settings.request(PROMPTS[0], Mode.probe(3, has_draft=False), turn=2)
    assert (probe.speculation.drafter, probe.speculation.draft_length) == ("lookup", 3)
    assert (probe.sampling.seed, probe.sampling.temperature, probe.max_tokens) == (9, 0.5, 20)


def test_speed_ups_are_paired_by_prompt_and_turn() -> None:
    """The machine halves its speed in the second turn: ratios must not see it."""
    results = Results(
        [
            run(PLAIN, 100), run(MODEL, 120), run(PLAIN, 50, turn=1), run(MODEL, 60, turn=1),
            run(PLAIN, 10, prompt=1), run(MODEL, 9, prompt=1),
        ]
    )  # fmt: skip
    assert results.speedups("model") == pytest.approx((0.9, 1.2, 1.2))
    assert results.speedups("plain") == pytest.approx((1, 1, 1))
    assert results.speeds("model") == (9, 60, 120)
    assert results.speedups("model", "code") == pytest.approx((0.9, 0.9, 0.9))
    assert results.kinds == ["prose", "code"]


@pytest.mark.parametrize("short", ["plain", "model"])
def test_answers_that_are_too_short_take_their_pair_with_them(short: str) -> None:
    runs = [
        run(mode, 50, tokens=LEAST_TOKENS - 1 if mode.name == short else LEAST_TOKENS) for mode in (PLAIN, MODEL)
    ] + [run(PLAIN, 10, prompt=1), run(MODEL, 20, prompt=1), run(MODEL, None, prompt=2)]
    results = Results(runs)
    assert results.speedups("model") == (2, 2, 2)
    assert [r.step.mode.name for r in results.too_short] == [short, "model"]


def test_nothing_measured_is_none() -> None:
    assert Results([]).speeds("plain") is None
    assert Results([run(MODEL, 10)]).speedups("model") is None


def events(*last: object) -> Sequence[object]:
    return [round_finished(0, ["a"], 0), round_finished(1, ["b", "c"], 3), *last]


def test_a_run_holds_what_the_events_told() -> None:
    step = Step(0, PROMPTS[0], MODEL)
    found = record(step, events(finished(tokens=3, tokens_per_s=42.0)))  # type: ignore[arg-type]
    assert found
    assert (found.tokens_per_s, found.answer_tokens, found.step) == (42.0, 3, step)
    assert [token.text for token in found.tokens] == ["a", "b", "c"]
    stats = Results([found]).speculation("model")
    assert (stats.rounds, stats.drafted, stats.accepted) == (2, 3, 1)


def test_a_stopped_answer_is_no_run_and_a_failed_one_is_its_error() -> None:
    step = Step(0, PROMPTS[0], MODEL)
    assert record(step, events(finished(reason=StopReason.cancelled))) is None  # type: ignore[arg-type]
    assert record(step, events()) is None  # type: ignore[arg-type]
    fault = Fault.of(ContextFullError("too long."))
    with pytest.raises(ContextFullError, match="too long"):
        record(step, events(finished(reason=StopReason.failed, error=fault)))  # type: ignore[arg-type]
