"""`slipstream bench --check`: are greedy answers token for token the same with and without a draft, and if not, why?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.chat import Message
from app.cli.progress import Progress
from app.engine import GenerationRequest
from app.engine.benchmark import BenchPrompt, Mode, Run, Settings, Step, record
from app.engine.protocol import Event, NextScored, TokenScore
from app.engine.rounds import Token
from app.errors import CancelledError

# A logit of an unquantised target was seen to differ by 0.05 between a batch of one and a batch of many, so two of
# them may change places from 0.1 on. Above that, rounding is no excuse.
ROUNDING_GAP = 0.1


class WritesAndScores(Protocol):
    """What the check asks of an engine."""

    def generate(self, request: GenerationRequest) -> Iterator[Event]: ...
    def score_next(
        self, messages: Sequence[Message], answer_tokens: Sequence[int], max_tokens: int | None = None
    ) -> NextScored: ...


@dataclass(frozen=True)
class Difference:
    """The first difference of an answer from the plain one. A token is None where that answer had ended."""

    prompt: str
    mode: str
    position: int  # in the answer, from 0
    plain: Token | None
    other: Token | None
    best: tuple[TokenScore, ...]

    @property
    def gap(self) -> float:
        """Between the two best logits."""
        return self.best[0].logit - self.best[1].logit

    @property
    def is_rounding(self) -> bool:
        """The two best tokens changed places, and are as near as rounding can bring them."""
        ids = {token.id for token in (self.plain, self.other) if token}
        return self.gap <= ROUNDING_GAP and ids == {score.id for score in self.best}

    def as_json(self) -> dict[str, Any]:
        def shown(token: Token | None) -> dict[str, Any] | None:
            return {"id": token.id, "text": token.text} if token else None

        return {
            "prompt": self.prompt,
            "mode": self.mode,
            "position": self.position,
            "plain": shown(self.plain),
            "other": shown(self.other),
            "best": [score._asdict() for score in self.best],
            "gap": self.gap,
            "is_rounding": self.is_rounding,
        }

    def sentence(self) -> str:
        cause = "rounding" if self.is_rounding else "not rounding"
        return (
            f"{self.prompt}, {self.mode}: token {self.position} is {_shown(self.plain)} without a draft and "
            f"{_shown(self.other)} with it; the two best logits are {self.gap:.4f} apart: {cause}."
        )


def check(
    engine: WritesAndScores,
    prompts: Sequence[BenchPrompt],
    modes: Sequence[Mode],
    settings: Settings,
    progress: Progress,
    *,
    as_json: bool,
) -> int:
    """Write every prompt plainly and in every mode, compare, and say what differs. 0 if exact but for rounding."""
    drafting = [mode for mode in modes if mode.drafter != "none"]
    compared, differences = len(prompts) * len(drafting), []
    try:
        for prompt in prompts:
            progress.show(f"{prompt.name}, plain")
            plain = _write(engine, prompt, Mode.named("plain"), settings)
            for mode in drafting:
                progress.show(f"{prompt.name}, {mode.name}")
                other = _write(engine, prompt, mode, settings)
                if difference := first_difference(engine, plain, other, settings.max_tokens):
                    differences.append(difference)
    finally:
        progress.clear()
    faults = [difference for difference in differences if not difference.is_rounding]
    if as_json:
        found = {
            "compared": compared,
            "equal": compared - len(differences),
            "exact": not faults,
            "rounding_gap": ROUNDING_GAP,
            "differences": [difference.as_json() for difference in differences],
        }
        print(json.dumps(found, ensure_ascii=False))
    else:
        for difference in differences:
            print(difference.sentence())
        print(_verdict(compared, len(differences), len(faults)))
    return 1 if faults else 0


def first_difference(engine: WritesAndScores, plain: Run, other: Run, max_tokens: int) -> Difference | None:
    """Where two answers to the same prompt part, and what the target thinks of the token there."""
    ours, theirs = plain.tokens, other.tokens
    position = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a.id != b.id), min(len(ours), len(theirs))
    )
    if position == len(ours) == len(theirs):
        return None
    prompt = plain.step.prompt
    scored = engine.score_next(prompt.messages, [token.id for token in ours[:position]], max_tokens)
    one, two = (tokens[position] if position < len(tokens) else None for tokens in (ours, theirs))
    return Difference(prompt.name, other.step.mode.name, position, one, two, scored.best)


def _write(engine: WritesAndScores, prompt: BenchPrompt, mode: Mode, settings: Settings) -> Run:
    run = record(Step(0, prompt, mode), engine.generate(settings.request(prompt, mode)))
    if run is None:
        raise CancelledError("Stopped.")
    return run


def _verdict(compared: int, different: int, faults: int) -> str:
    if not different:
        return f"All {compared} answers are token for token the same as without a draft."
    if not faults:
        return (
            f"{different} of {compared} answers differ from the one without a draft, all by rounding "
            f"(the two best logits at most {ROUNDING_GAP} apart)."
        )
    return (
        f"{faults} of {compared} answers differ by more than rounding: drafting changed them. This is a fault of "
        "Slipstream; please report it with the names of both model files."
    )


def _shown(token: Token | None) -> str:
    return f"“{token.text}” ({token.id})" if token else "the end"
