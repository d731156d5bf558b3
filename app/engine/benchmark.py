"""A benchmark of a loaded pair: which answers are written in which order, and how their speeds are compared.

Other programs slow a machine for seconds at a time. So the modes take turns on every prompt, and a speed is divided by
the plain one of the same prompt and turn only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

from app.chat import Message, Role
from app.engine.protocol import (
    DrafterChoice,
    Event,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    RoundFinished,
    SamplingParams,
    SpeculationParams,
    VerifyRule,
)
from app.engine.rounds import DrafterKind, Round, StopReason, Token
from app.engine.stats import SpeculationStats

LEAST_TOKENS = 16  # an answer that ends earlier is too short to have a speed
WARM_UP_TOKENS = 16

ModeName = Literal["plain", "model", "lookup", "auto"]
MODE_NAMES: tuple[ModeName, ...] = ("plain", "model", "lookup", "auto")


@dataclass(frozen=True)
class BenchPrompt:
    """A question of the benchmark. `kind` groups results: prose, code, repeat, or whatever a file of prompts says."""

    name: str
    kind: str
    text: str

    @property
    def messages(self) -> tuple[Message, ...]:
        return (Message.of(Role.user, self.text),)


@dataclass(frozen=True)
class Mode:
    """A way to write an answer. `draft_length` None leaves it to pacing; a probe fixes it."""

    name: str
    drafter: DrafterChoice
    draft_length: int | None = None

    @classmethod
    def named(cls, name: ModeName) -> Mode:
        return cls(name, "none" if name == "plain" else name)

    @classmethod
    def probe(cls, length: int, *, has_draft: bool) -> Mode:
        return cls(f"length {length}", "model" if has_draft else "lookup", length)

    @property
    def is_probe(self) -> bool:
        return self.draft_length is not None


@dataclass(frozen=True)
class Settings:
    temperature: float = 0.0
    max_tokens: int = 96
    repeat: int = 1
    seed: int = 1
    verify: VerifyRule = VerifyRule.rejection

    def request(self, prompt: BenchPrompt, mode: Mode, turn: int = 0) -> GenerationRequest:
        """Every mode has the same seed in the same turn, and another one in the next."""
        return GenerationRequest(
            prompt.messages,
            SamplingParams(temperature=self.temperature, seed=self.seed + turn),
            SpeculationParams(mode.drafter, mode.draft_length, self.verify),
            max_tokens=self.max_tokens,
        )


class Step(NamedTuple):
    """One answer to write."""

    turn: int
    prompt: BenchPrompt
    mode: Mode


def schedule(prompts: Sequence[BenchPrompt], modes: Sequence[Mode], repeat: int) -> Iterator[Step]:
    """A B C, then B C A, …, so that no mode always comes first. Probes of a length run in the first turn only."""
    for turn in range(repeat):
        now = [mode for mode in modes if turn == 0 or not mode.is_probe]
        for number, prompt in enumerate(prompts):
            first = (turn * len(prompts) + number) % len(now)
            for mode in (*now[first:], *now[:first]):
                yield Step(turn, prompt, mode)


@dataclass(frozen=True)
class Run:
    """One answer as it went. `tokens_per_s` is None where it was too short to have a speed."""

    step: Step
    rounds: tuple[Round, ...]
    answer_tokens: int
    tokens_per_s: float | None
    drafter: DrafterKind = DrafterKind.none

    @property
    def tokens(self) -> list[Token]:
        return [token for r in self.rounds for token in r.tokens]

    @property
    def is_measured(self) -> bool:
        return self.tokens_per_s is not None and self.answer_tokens >= LEAST_TOKENS


def record(step: Step, events: Iterable[Event]) -> Run | None:
    """The run that one answer's events tell of; None if it was stopped. Raises the SlipstreamError that ended it."""
    rounds: list[Round] = []
    drafter = DrafterKind.none
    for event in events:
        match event:
            case GenerationStarted():
                drafter = event.drafter
            case RoundFinished():
                rounds.append(event.round)
            case GenerationFinished():
                if event.error:
                    raise event.error.to_error()
                if event.stop_reason is StopReason.cancelled:
                    return None
                return Run(step, tuple(rounds), event.answer_tokens, event.timing.tokens_per_s, drafter)
    return None


class Spread(NamedTuple):
    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        return cls(min(values), median(values), max(values)) if values else None


class Results:
    """The runs so far, and what follows from them."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = list(runs)
        self._plain = {
            (run.step.turn, run.step.prompt.name): run.tokens_per_s
            for run in self.runs
            if run.step.mode.name == "plain" and run.is_measured
        }

    @property
    def kinds(self) -> list[str]:
        """Of prompts, in the order they came."""
        return list(dict.fromkeys(run.step.prompt.kind for run in self.runs))

    def of(self, mode: str, kind: str | None = None) -> list[Run]:
        """The runs of a mode, on prompts of one kind or on all."""
        return [run for run in self.runs if run.step.mode.name == mode and kind in (None, run.step.prompt.kind)]

    def speeds(self, mode: str, kind: str | None = None) -> Spread | None:
        """Tokens per second."""
        return Spread.of([run.tokens_per_s for run in self.of(mode, kind) if run.is_measured and run.tokens_per_s])

    def speedups(self, mode: str, kind: str | None = None) -> Spread | None:
        """Pair by pair against plain; None without a pair."""
        ratios = []
        for run in self.of(mode, kind):
            plain = self._plain.get((run.step.turn, run.step.prompt.name))
            if plain and run.is_measured and run.tokens_per_s:
                ratios.append(run.tokens_per_s / plain)
        return Spread.of(ratios)

    def speculation(self, mode: str) -> SpeculationStats:
        stats = SpeculationStats()
        for run in self.of(mode):
            for r in run.rounds:
                stats.observe(r)
        return stats

    @property
    def too_short(self) -> list[Run]:
        """Runs whose speed does not count."""
        return [run for run in self.runs if not run.is_measured]
