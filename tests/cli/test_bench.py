"""`slipstream bench`: its report from known times, its check from known differences, and both as a user meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app import paths
from app.chat import Message
from app.cli import bench_check, bench_report
from app.cli.bench import measure, read_prompts
from app.cli.progress import Progress
from app.engine import GenerationRequest
from app.engine.benchmark import BenchPrompt, Mode, Results, Run, Settings
from app.engine.protocol import (
    Event,
    Fault,
    GenerationStarted,
    ModelInfo,
    NextScored,
    PairLoaded,
    RoundFinished,
    TokenScore,
)
from app.engine.rounds import DrafterKind, Round, RoundTimes, StopReason, Token, TokenSource
from app.errors import OutOfMemoryError, UsageError
from tests.support.fake_engine import finished
from tests.support.models import Models

PROMPTS = [BenchPrompt("tale", "prose", "A?"), BenchPrompt("loop", "code", "B?")]
MODES = [Mode.named(name) for name in ("plain", "model", "lookup", "auto")]
INFO = ModelInfo("models/t.gguf", "llama", 30, 0, 512, 512, 100, 1000)
LOADED = PairLoaded(INFO, INFO, None, 0.5)

PLAIN_MS, PASS_MS, DRAFT_MS = 10.0, 12.0, 1.0  # a pass over one token, over three, a draft token
ROUNDS = 40


@dataclass
class TimedEngine:
    """Writes answers of known times: rounds of two draft tokens, of which `accepted` say how many stand, in turn."""

    accepted: Sequence[int] = (2, 1, 2, 0)
    speeds: dict[str, float] = field(default_factory=lambda: {"none": 100, "model": 150, "lookup": 80, "auto": 140})
    answer_tokens: int = 64
    fails_at: int | None = None
    asked: list[GenerationRequest] = field(default_factory=list)

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        self.asked.append(request)
        mode = request.speculation.drafter
        kind = {"none": DrafterKind.none, "lookup": DrafterKind.lookup}.get(mode, DrafterKind.model)
        yield GenerationStarted(1, 10, 0, kind, "because")
        if len(self.asked) == self.fails_at:
            fault = Fault.of(OutOfMemoryError("No memory is left."))
            yield finished(1, StopReason.failed, error=fault)
            return
        for number in range(ROUNDS):
            drafted = 2 if number and kind is not DrafterKind.none else 0
            accepted = self.accepted[number % len(self.accepted)] if drafted else 0
            draft_s = drafted * DRAFT_MS / 1000 if kind is DrafterKind.model else 0.0
            times = RoundTimes(draft_s, (PASS_MS if drafted else PLAIN_MS) / 1000 - 0.001, 0.001)
            tokens = (Token(1, TokenSource.draft, "x"),) * accepted + (Token(2, TokenSource.bonus, "y"),)
            r = Round(number, kind, tokens, drafted, accepted, drafted - accepted, 0, times)
            yield RoundFinished(1, r, (), 20)
        yield finished(1, StopReason.max_tokens, tokens=self.answer_tokens, tokens_per_s=self.speeds[mode])


def report_of(engine: TimedEngine, modes: Sequence[Mode] = MODES, repeat: int = 1) -> dict[str, Any]:
    runs: list[Run] = []
    settings = Settings(repeat=repeat)
    measure(engine, PROMPTS, modes, settings, runs, Progress())
    return bench_report.report(Results(runs), modes, LOADED, settings, is_complete=True)


def text_of(report: dict[str, Any]) -> str:
    return "\n".join(bench_report.lines(report))


# -- the report ---------------------------------------------------------------------------------------------------


def test_every_mode_is_warmed_up_once_before_it_counts() -> None:
    engine = TimedEngine()
    runs: list[Run] = []
    measure(engine, PROMPTS, MODES, Settings(max_tokens=96, repeat=2), runs, Progress())
    assert [request.max_tokens for request in engine.asked[:5]] == [16, 16, 16, 16, 96]
    assert len(engine.asked) == 4 + len(runs) == 4 + 4 * 2 * 2


def test_the_report_of_known_times() -> None:
    report = report_of(TimedEngine())
    assert json.loads(json.dumps(report))["complete"] is True
    assert report["modes"]["model"]["speedup"] == pytest.approx({"min": 1.5, "median": 1.5, "max": 1.5})
    assert report["modes"]["lookup"]["tokens_per_s"] == {"min": 80, "median": 80, "max": 80}
    assert report["classes"]["code"]["auto"] == pytest.approx({"tokens_per_s": 140, "speedup": 1.4})
    assert report["costs"]["target_ms"] == pytest.approx({"1": PLAIN_MS, "3": PASS_MS})
    assert report["costs"]["draft_ms"] == pytest.approx(DRAFT_MS)
    counted = report["modes"]["model"]["speculation"]
    assert counted["drafted"] == 2 * 2 * (ROUNDS - 1)
    assert counted["drafted"] == counted["accepted"] + counted["rejected"] + counted["discarded"]


def test_the_ideal_follows_from_costs_and_acceptance() -> None:
    """Of 39 rounds with a draft, 29 accept the first token and 19 both (the pattern without its first round)."""
    report = report_of(TimedEngine(accepted=(2, 1, 2, 0)))
    first, second = 29 / 39, 19 / 29
    best = (1 + first + first * second) * PLAIN_MS / (PASS_MS + 2 * DRAFT_MS)
    by_lookup = (1 + first + first * second) * PLAIN_MS / PASS_MS
    assert report["ideal"]["drafter"] == "lookup"
    assert report["ideal"]["draft_length"] == 2
    assert report["ideal_speedup"] == pytest.approx(by_lookup)
    assert report["efficiency"] == pytest.approx(1.4 / by_lookup)
    only_model = report_of(TimedEngine(), [MODES[0], MODES[1], MODES[3]])
    assert only_model["ideal"]["acceptance_from"] == ["model"]
    assert only_model["ideal_speedup"] == pytest.approx(best)
    assert "Passes over 2 tokens were not measured" in text_of(only_model)


def test_fixed_lengths_are_the_better_source_of_acceptance() -> None:
    report = report_of(TimedEngine(), [*MODES[:2], Mode.probe(2, has_draft=True)])
    assert report["ideal"]["acceptance_from"] == ["length 2"]
    assert "flatters" not in text_of(report)
    assert "flatters" in text_of(report_of(TimedEngine(), MODES[:2]))
    assert report["efficiency"] is None  # auto did not run


@pytest.mark.parametrize(
    ("speeds", "sentence"),
    [
        (
            {"auto": 140},
            "auto is 1.40 times as fast as plain on this pair and machine; model is the fastest, 1.50 times.",
        ),
        ({"auto": 150}, "auto is 1.50 times as fast as plain on this pair and machine."),
        ({"auto": 99, "model": 90}, "auto is as fast as plain on this pair and machine."),
        ({"auto": 90, "model": 70}, "Plain is fastest here: auto is 0.90 times as fast on this pair and machine."),
        ({"auto": 90, "model": 101}, "Plain is fastest here: auto is 0.90 times as fast on this pair and machine."),
    ],
)
def test_the_result_is_one_sentence(speeds: dict[str, float], sentence: str) -> None:
    report = report_of(TimedEngine(speeds={"none": 100, "model": 150, "lookup": 80} | speeds))
    assert bench_report.verdict(report) == sentence
    assert sentence in text_of(report)


def test_short_answers_are_named_and_do_not_count() -> None:
    report = report_of(TimedEngine(answer_tokens=15))
    assert report["modes"]["auto"]["answers"] == 0
    assert report["modes"]["auto"]["speedup"] == {"min": None, "median": None, "max": None}
    assert report["efficiency"] is None
    text = text_of(report)
    assert "Answers of fewer than 16 tokens have no speed here: tale (plain)" in text
    assert "There is no speed-up to report" in text


def test_modes_that_drafted_nothing_are_named() -> None:
    assert "No draft was made" not in text_of(report_of(TimedEngine()))
    modes = [MODES[0], Mode("auto", "none")]
    assert "No draft was made in: auto." in text_of(report_of(TimedEngine(), modes))


def test_the_table_is_aligned() -> None:
    lines = bench_report.lines(report_of(TimedEngine()))
    head, *rows = lines[2:7]
    assert [row.split()[0] for row in rows] == ["plain", "model", "lookup", "auto"]
    end = head.index("tokens/s") + len("tokens/s")
    assert [row[:end].split()[-1] for row in rows] == ["100.0", "150.0", "80.0", "140.0"]


def test_what_was_measured_before_a_failure_stays() -> None:
    runs: list[Run] = []
    with pytest.raises(OutOfMemoryError):
        measure(TimedEngine(fails_at=4 + 3), PROMPTS, MODES, Settings(), runs, Progress())
    assert [run.step.mode.name for run in runs] == ["plain", "model"]
    report = bench_report.report(Results(runs), MODES, LOADED, Settings(), is_complete=False)
    assert report["modes"].keys() == {"plain", "model"}
    assert report["complete"] is False


# -- the check ----------------------------------------------------------------------------------------------------


@dataclass
class DifferingEngine:
    """Answers 1 2 3 … plainly; with a draft, `other` from position 2 on. The two best logits there are `gap` apart."""

    other: tuple[int, ...] = (3, 4, 5)
    gap: float = 0.0
    best: tuple[int, int] = (3, 9)
    scored: list[Sequence[int]] = field(default_factory=list)

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        assert request.sampling.temperature == 0
        ids = (1, 2, *((3, 4, 5) if request.speculation.drafter == "none" else self.other))
        tokens = tuple(Token(i, TokenSource.plain, f"<{i}>") for i in ids)
        r = Round(0, DrafterKind.none, tokens, 0, 0, 0, 0, RoundTimes())
        yield RoundFinished(1, r, (), 20)
        yield finished(1, StopReason.max_tokens, tokens=len(ids), tokens_per_s=10.0)

    def score_next(
        self, messages: Sequence[Message], answer_tokens: Sequence[int], max_tokens: int | None = None
    ) -> NextScored:
        self.scored.append(answer_tokens)
        one, two = self.best
        return NextScored(1, (TokenScore(one, 5.0, "a"), TokenScore(two, 5.0 - self.gap, "b")))


def check(engine: DifferingEngine, *, as_json: bool = True) -> int:
    return bench_check.check(engine, PROMPTS[:1], MODES[:2], Settings(), Progress(), as_json=as_json)


def test_equal_answers_pass(capsys: pytest.CaptureFixture[str]) -> None:
    engine = DifferingEngine()
    assert check(engine) == 0
    assert json.loads(capsys.readouterr().out) == {
        "compared": 1, "equal": 1, "exact": True, "rounding_gap": bench_check.ROUNDING_GAP, "differences": [],
    }  # fmt: skip
    assert engine.scored == []


@pytest.mark.parametrize(
    ("gap", "best", "is_rounding"),
    [
        (0.0, (3, 9), True),
        (0.05, (9, 3), True),
        (bench_check.ROUNDING_GAP * 1.01, (3, 9), False),
        (0.0, (3, 8), False),  # the token that was written is not even among the two best
    ],
)
def test_rounding_and_faults_are_told_apart(
    capsys: pytest.CaptureFixture[str], gap: float, best: tuple[int, int], is_rounding: bool
) -> None:
    engine = DifferingEngine(other=(9, 4, 5), gap=gap, best=best)
    assert check(engine) == (0 if is_rounding else 1)
    (difference,) = json.loads(capsys.readouterr().out)["differences"]
    assert (difference["prompt"], difference["mode"], difference["position"]) == ("tale", "model", 2)
    assert (difference["plain"]["id"], difference["other"]["id"]) == (3, 9)
    assert difference["gap"] == pytest.approx(gap)
    assert difference["is_rounding"] is is_rounding
    assert engine.scored == [[1, 2]]


def test_an_answer_that_ends_early_differs_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(DifferingEngine(other=(3,)), as_json=False) == 1
    out = capsys.readouterr().out
    assert "tale, model: token 3 is “<4>” (4) without a draft and the end with it" in out
    assert "fault" in out


# -- prompts ------------------------------------------------------------------------------------------------------


def test_the_prompts_that_come_along() -> None:
    prompts = read_prompts(None)
    assert len(prompts) == 8
    assert {prompt.kind for prompt in prompts} == {"prose", "code", "repeat"}
    assert len({prompt.name for prompt in prompts}) == len({prompt.text for prompt in prompts}) == 8
    assert (paths.resources_folder() / "bench" / "prompts.json").is_file()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("no json", "not a list of prompts"),
        ('[{"name": "a"}]', "missing required field `text`"),
        ('[{"name": "a", "text": "x"}, {"name": "a", "text": "y"}]', "“a”"),
        ('[{"name": "a", "text": " "}]', "has no text"),
        ("[]", "no prompt"),
    ],
)
def test_a_file_of_prompts_that_cannot_be_used_is_named(tmp_path: Path, content: str, named: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"mine\.json") as caught:
        read_prompts(file)
    assert named in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read"):
        read_prompts(tmp_path / "no.json")


# -- as a process -------------------------------------------------------------------------------------------------


@pytest.fixture
def two_prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.json"
    entries = [
        {"name": "list", "class": "prose", "text": "Name three colours."},
        {"name": "copy", "class": "repeat", "text": "Repeat: one two three one two three."},
    ]
    file.write_text(json.dumps(entries))
    return file


def bench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", "bench", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_pair_is_measured(models: Models, two_prompts: Path) -> None:
    result = bench(
        "--target", models.path("tiny-same"), "--draft", models.path("tiny-same-2"), "--prompts", two_prompts,
        "--max-tokens", "24", "--repeat", "2", "--lengths", "1,4", "--threads", "1", "--context", "512", "--json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert list(report["modes"]) == ["plain", "model", "lookup", "auto", "length 1", "length 4"]
    assert {name: mode["answers"] for name, mode in report["modes"].items()} == {
        "plain": 4, "model": 4, "lookup": 4, "auto": 4, "length 1": 2, "length 4": 2,
    }  # fmt: skip
    for name, mode in report["modes"].items():
        assert 0 < mode["speedup"]["min"] <= mode["speedup"]["median"] <= mode["speedup"]["max"], name
    assert report["modes"]["plain"]["speculation"]["drafted"] == 0
    assert set(report["modes"]["length 4"]["speculation"]["draft_lengths"]) <= {"0", "1", "2", "3", "4"}
    assert {"1", "2", "5"} <= set(report["costs"]["target_ms"])
    assert report["ideal_speedup"] >= 1
    assert report["efficiency"] == pytest.approx(report["modes"]["auto"]["speedup"]["median"] / report["ideal_speedup"])
    assert list(report["classes"]) == ["prose", "repeat"]
    assert result.stderr == ""


def test_a_real_pair_passes_the_check(models: Models, two_prompts: Path) -> None:
    result = bench(
        "--target", models.path("smol-q8"), "--draft", models.path("smol-q2"), "--prompts", two_prompts,
        "--max-tokens", "24", "--threads", "1", "--context", "512", "--check",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == "All 12 answers are token for token the same as without a draft.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--modes", "plain,model"], 2, "--draft FILE"),
        (["--modes", "plain,warp"], 2, "warp"),
        (["--lengths", "1,17"], 2, "17 is more than 16"),
        (["--max-tokens", "5"], 2, "less than 16"),
        (["--modes", "plain", "--check"], 2, "nothing to check"),
        (["--draft", "no.gguf"], 3, "no.gguf"),
        (["--temperature", "-1"], 2, "temperature"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said(models: Models, arguments: list[str], code: int, named: str) -> None:
    result = bench("--target", models.path("tiny-small"), "--threads", "1", "--context", "512", *arguments)
    assert result.returncode == code, result.stderr
    assert named in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_files_that_are_no_pair_end_with_3(models: Models) -> None:
    result = bench("--target", models.path("tiny-same"), "--draft", models.path("broken-truncated"))
    assert result.returncode == 3
    assert "damaged" in result.stderr
    assert bench("--target", "no.gguf").returncode == 3


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupt_ends_with_130_and_prints_what_is_there(models: Models, home: Path) -> None:
    screen, terminal = os.openpty()  # progress is shown on a terminal only
    process = subprocess.Popen(
        [
            sys.executable, "-m", "app", "bench", "--target", str(models.path("smol-q8")), "--repeat", "1000",
            "--max-tokens", "16", "--threads", "1", "--context", "512",
        ],
        stdout=subprocess.PIPE, stderr=terminal, text=True,
    )  # fmt: skip
    os.close(terminal)
    err = ""
    try:
        while "\x1b[K5 of 24000: " not in err:
            err += os.read(screen, 4096).decode()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        while chunk := _read(screen):
            err += chunk
    finally:
        os.close(screen)
    assert process.returncode == 130
    assert "warming up: plain" in err
    assert "Traceback" not in err
    assert err.endswith("slipstream: Stopped; these are the results so far.\r\n")
    assert "tokens/s" in out


def _read(screen: int) -> str:
    """What stands on a terminal; nothing when its last program has gone."""
    try:
        return os.read(screen, 4096).decode()
    except OSError:
        return ""
