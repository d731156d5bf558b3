"""`slipstream bench`: how fast a pair writes with a draft and without, on this machine, pair by pair."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from app import paths
from app.chat import ModelPair
from app.cli import bench_check, bench_report
from app.cli.progress import Progress
from app.engine import Engine, GenerationRequest, LoadOptions
from app.engine.benchmark import (
    MODE_NAMES,
    WARM_UP_TOKENS,
    BenchPrompt,
    Mode,
    ModeName,
    Results,
    Run,
    Settings,
    Step,
    record,
    schedule,
)
from app.engine.protocol import Event
from app.errors import CancelledError, ModelFileError, PairError, SlipstreamError, UsageError

_CHECKED_LENGTHS = (1, 3, 8)


class Writes(Protocol):
    """What a benchmark asks of an engine."""

    def generate(self, request: GenerationRequest) -> Iterator[Event]: ...


def bench(options: argparse.Namespace) -> int:
    settings = Settings(
        temperature=0.0 if options.check else options.temperature,
        max_tokens=options.max_tokens,
        repeat=options.repeat,
        seed=options.seed,
        verify=options.verify,
    )
    prompts = read_prompts(Path(options.prompts) if options.prompts else None)
    modes = _modes(options)
    if options.draft and not Path(options.draft).exists():
        raise ModelFileError(f"There is no draft file {options.draft}.")
    pair = ModelPair(Path(options.target), Path(options.draft) if options.draft else None)
    with Engine() as engine:
        loaded = engine.load(pair, LoadOptions(options.context, options.gpu_layers, options.threads))
        if loaded.draft_problem:
            raise PairError(loaded.draft_problem)
        if options.check:
            return bench_check.check(engine, prompts, modes, settings, Progress(), as_json=options.json)
        runs: list[Run] = []
        failure: SlipstreamError | None = None
        try:
            measure(engine, prompts, modes, settings, runs, Progress())
        except KeyboardInterrupt:
            failure = CancelledError("Stopped; these are the results so far." if runs else "Stopped.")
        except SlipstreamError as error:
            failure = error
    if runs:
        report = bench_report.report(Results(runs), modes, loaded, settings, is_complete=failure is None)
        print(json.dumps(report, ensure_ascii=False) if options.json else "\n".join(bench_report.lines(report)))
    if failure:
        raise failure
    return 0


def _modes(options: argparse.Namespace) -> list[Mode]:
    """The named modes, then the probes. Raises UsageError for what needs a draft model that was not given."""
    has_draft = options.draft is not None
    names: Sequence[ModeName] = options.modes or [name for name in MODE_NAMES if has_draft or name != "model"]
    if "model" in names and not has_draft:
        raise UsageError("The mode “model” needs a draft model. Name one with --draft FILE, or leave the mode out.")
    if options.check and not any(name != "plain" for name in names):
        raise UsageError("There is nothing to check: --modes names no mode with a draft.")
    lengths = options.lengths or (_CHECKED_LENGTHS if options.check else ())
    return [*map(Mode.named, names), *(Mode.probe(length, has_draft=has_draft) for length in lengths)]


# -- prompts ------------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct):
    name: str
    text: str
    kind: str = msgspec.field(name="class", default="prose")


def read_prompts(file: Path | None) -> list[BenchPrompt]:
    """The prompts of a JSON file, or those that come with the program.

    Raises UsageError that names what is wrong in the file.
    """
    file = file or paths.resources_folder() / "bench" / "prompts.json"
    try:
        entries = msgspec.json.decode(file.read_bytes(), type=list[_Entry])
    except OSError as error:
        raise UsageError(f"The prompts in {file} cannot be read: {error.strerror or error}.") from error
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{file.name} is not a list of prompts ({error}). "
            'Write [{"name": "story", "class": "prose", "text": "Tell a story."}, …].'
        ) from error
    names = [entry.name for entry in entries]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"Two prompts of {file.name} are called “{twice}”. Give each a name of its own.")
    if empty := next((entry.name for entry in entries if not entry.text.strip()), None):
        raise UsageError(f"The prompt “{empty}” of {file.name} has no text.")
    if not entries:
        raise UsageError(f"There is no prompt in {file.name}.")
    return [BenchPrompt(entry.name, entry.kind, entry.text) for entry in entries]


# -- measuring ----------------------------------------------------------------------------------------------------


def measure(
    engine: Writes,
    prompts: Sequence[BenchPrompt],
    modes: Sequence[Mode],
    settings: Settings,
    runs: list[Run],
    progress: Progress,
) -> None:
    """Write every answer of the schedule and append each to `runs` as soon as it is there.

    Raises CancelledError when an answer was stopped, and the SlipstreamError of one that failed.
    """
    try:
        for mode in modes:
            progress.show(f"warming up: {mode.name}")
            short = Settings(settings.temperature, WARM_UP_TOKENS, 1, settings.seed, settings.verify)
            _write(engine, Step(0, prompts[0], mode), short)
        steps = list(schedule(prompts, modes, settings.repeat))
        for number, step in enumerate(steps, 1):
            progress.show(f"{number} of {len(steps)}: {step.prompt.name}, {step.mode.name}")
            runs.append(_write(engine, step, settings))
    finally:
        progress.clear()


def _write(engine: Writes, step: Step, settings: Settings) -> Run:
    run = record(step, engine.generate(settings.request(step.prompt, step.mode, step.turn)))
    if run is None:
        raise CancelledError("Stopped.")
    return run
