"""An engine without models: it answers every request of a front end from its own thread, as a script or as a stream."""

from __future__ import annotations

import itertools
import queue
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.chat import ModelPair
from app.engine.protocol import (
    EngineDied,
    Event,
    Fault,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    LoadFailed,
    LoadOptions,
    LoadProgressed,
    ModelInfo,
    PacingReport,
    PairChecked,
    PairLoaded,
    RoundFinished,
    Timing,
)
from app.engine.rounds import DrafterKind, Round, RoundTimes, Span, StopReason, Token, TokenSource
from app.errors import CancelledError, EngineDiedError, SlipstreamError

Step = Event | Callable[["FakeEngine", int], None]
ANSWER = """The light swept the bay in slow, patient circles, and the fishing boats answered with their small windows.

1. *Measure* what a round costs.
2. Draft **only** what pays.

```python
def count_steps(levels: list[int]) -> int:
    return sum(levels)
```

That is `all` there is to it.
"""
CRASH = "The engine ended by itself: the model needs more memory than is free. Choose a smaller context or model."


@dataclass(frozen=True)
class Load:
    pair: ModelPair
    options: LoadOptions
    experience: dict[str, Any] | None = None


@dataclass(frozen=True)
class Generation:
    request_id: int
    request: GenerationRequest


class FakeEngine:
    """Implements `ChatEngine`. Events with the field `request_id` in a script get the id of the running request.

    `scripts`: one sequence of steps for each of the next answers; without one, `answer` is streamed at `tokens_per_s`
    (0: as fast as it goes). A script that does not finish its answer waits to be cancelled.
    """

    def __init__(
        self,
        *,
        answer: str = ANSWER,
        tokens_per_s: float = 0.0,
        repeat_answer: bool = False,
        scripts: Iterable[Sequence[Step]] = (),
        load_s: float = 0.0,
        check_s: float = 0.0,
        draft_problem: str | None = None,
    ) -> None:
        self.answer = answer
        self.tokens_per_s = tokens_per_s
        self.repeat_answer = repeat_answer
        self.scripts = list(scripts)
        self.load_s = load_s
        self.check_s = check_s
        self.draft_problem = draft_problem
        self.load_fault: SlipstreamError | None = None  # refuses the next loads
        self.suggested: dict[str, float] = {}  # by every model, from the next load on
        self.unfit: dict[str, str] = {}  # draft file -> why it does not fit
        self.translating: dict[str, str] = {}  # draft file -> how its vocabulary differs
        self.unreadable: dict[str, str] = {}  # file -> why it cannot be read

        self.loads: list[Load] = []
        self.checks: list[ModelPair] = []
        self.generations: list[Generation] = []
        self.overlaps = 0  # generations requested while another one was under way
        self.tokens_sent = 0

        self._listeners: list[Callable[[Event], None]] = []
        self._ids = itertools.count(1)
        self._jobs: queue.Queue[Load | Generation | ModelPair | None] = queue.Queue()
        self._checks: queue.Queue[ModelPair] = queue.Queue()
        self._cancelled = threading.Event()
        self._closing = threading.Event()
        self._crash: EngineDied | None = None
        self._is_dead = False
        self._running: int | None = None  # request_id
        self._is_finished = True
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    # -- ChatEngine ---------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def request_load(
        self, pair: ModelPair, options: LoadOptions | None = None, experience: dict[str, Any] | None = None
    ) -> None:
        self.loads.append(Load(pair, options or LoadOptions(), experience))
        self._cancelled.clear()
        self._jobs.put(self.loads[-1])

    def request_check(self, pair: ModelPair) -> None:
        self.checks.append(pair)
        self._checks.put(pair)
        self._jobs.put(pair)  # wakes an idle thread

    def request_generation(self, request: GenerationRequest) -> int:
        self.overlaps += self._running is not None
        self._running = next(self._ids)
        self._cancelled.clear()
        self.generations.append(Generation(self._running, request))
        self._jobs.put(self.generations[-1])
        return self._running

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self._closing.set()
        self._cancelled.set()
        self._jobs.put(None)
        self._thread.join()

    # -- what a test can do -------------------------------------------------------------------------------------------

    def die(self, sentence: str = CRASH, *, restarting: bool = False) -> None:
        """End the process: what runs is cut short."""
        self._crash = EngineDied(sentence, restarting, 134)
        if self._running is None:
            self._jobs.put(ModelPair(Path()))  # wakes an idle thread

    def emit(self, event: Event) -> None:
        """Hand any event to the listeners, on the calling thread."""
        if isinstance(event, GenerationFinished) and event.request_id == self._running:
            self._running = None
            self._is_finished = True
        if isinstance(event, RoundFinished):
            self.tokens_sent += len(event.round.tokens)
        for listener in tuple(self._listeners):
            listener(event)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if isinstance(job, Load):
                self._load(job)
            elif isinstance(job, Generation):
                self._generate(job)
            self._serve_checks()
            self._die_if_told()

    def _load(self, load: Load) -> None:
        for hundredth in (0, 35, 70, 100):
            if self._pause(self.load_s / 4):
                self.emit(LoadFailed(Fault.of(CancelledError("Loading was stopped."))))
                return
            self.emit(LoadProgressed("target", hundredth / 100))
        if self.load_fault is not None:
            self.emit(LoadFailed(Fault.of(self.load_fault)))
            return
        self._is_dead = False
        self.emit(self._loaded(load))

    def _loaded(self, load: Load) -> PairLoaded:
        draft = load.pair.draft
        problem = None if draft is None else self.unfit.get(str(draft), self.draft_problem)
        target_info = replace(self._info(load.pair.target), context=load.options.context)
        return PairLoaded(target_info, self._info(draft) if draft and not problem else None, problem, self.load_s)

    def _generate(self, job: Generation) -> None:
        self._is_finished = False
        if self._is_dead and self.loads:
            self._load(self.loads[-1])
        started = time.monotonic()
        script = self.scripts.pop(0) if self.scripts else None
        steps = script if script is not None else self._stream(job)
        for step in steps:
            if self._cancelled.is_set() or self._crash is not None or self._is_finished:
                break
            if callable(step):
                step(self, job.request_id)
            else:
                self.emit(replace(step, request_id=job.request_id) if hasattr(step, "request_id") else step)
        while not (self._cancelled.is_set() or self._crash is not None or self._is_finished):
            self._serve_checks()
            time.sleep(0.001)
        if self._crash is not None:
            fault = Fault(EngineDiedError.__name__, self._crash.sentence)
            self._finish(job, StopReason.failed, started, fault)
        elif not self._is_finished:
            self._finish(job, StopReason.cancelled, started)

    def _finish(self, job: Generation, reason: StopReason, started: float, error: Fault | None = None) -> None:
        if not self._is_finished:
            self.emit(finished(job.request_id, reason, seconds=time.monotonic() - started, error=error))

    def _die_if_told(self) -> None:
        crash, self._crash = self._crash, None
        if crash is None:
            return
        self._is_dead = not crash.restarting
        self.emit(crash)
        if crash.restarting and self.loads:
            self._load(self.loads[-1])

    def _serve_checks(self) -> None:
        while not self._checks.empty():
            pair = self._checks.get()
            if self.check_s:
                time.sleep(self.check_s)
            self.emit(self._checked(pair))

    def _checked(self, pair: ModelPair) -> PairChecked:
        target, draft = str(pair.target.absolute()), None if pair.draft is None else str(pair.draft.absolute())
        if target in self.unreadable:
            return PairChecked(target, draft, False, self.unreadable[target])
        target_info = self._info(pair.target)
        if pair.draft is None or draft is None:
            return PairChecked(target, None, True, "The model can be read.", target_info)
        if draft in self.unreadable:
            return PairChecked(target, draft, False, self.unreadable[draft], target_info)
        if draft in self.unfit:
            return PairChecked(target, draft, False, self.unfit[draft], target_info, self._info(pair.draft))
        reason = self.translating.get(draft, "They fit: both use the same 49,152 tokens.")
        return PairChecked(
            target, draft, True, reason, target_info, self._info(pair.draft), translates=draft in self.translating
        )

    def _info(self, file: Path) -> ModelInfo:
        info = ModelInfo(str(file), "llama 135M Q4_1", 30, 0, 0, 8192, 49152, 94_000_000)
        return replace(info, suggested=dict(self.suggested))

    def _stream(self, job: Generation) -> Iterator[Step]:
        """Rounds of a plausible drafter: mostly accepted, sometimes cut short, at the wanted speed."""
        chance = random.Random(job.request_id)
        drafter = DrafterKind.lookup if job.request.speculation.drafter != "none" else DrafterKind.none
        yield GenerationStarted(job.request_id, 40, 0, drafter, "Drafting by lookup in the text so far.")
        pieces = re.findall(r"\s*\S+\s?|\s+", self.answer)
        source: Iterator[str] = itertools.cycle(pieces) if self.repeat_answer else iter(pieces)
        due = time.monotonic()
        for index in itertools.count():
            drafted = chance.choice((0, 2, 3, 4, 4, 5)) if drafter is not DrafterKind.none else 0
            accepted = min(drafted, chance.choice((0, 1, 2, 3, 4, 5)))
            texts = list(itertools.islice(source, accepted + 1))
            if not texts:
                break
            yield round_finished(index, texts, drafted, drafter, request_id=job.request_id)
            if self.tokens_per_s:
                due += len(texts) / self.tokens_per_s
                self._serve_checks()
                if self._pause(due - time.monotonic()):
                    return
        yield finished(
            job.request_id, StopReason.end_of_turn, tokens=len(pieces), tokens_per_s=self.tokens_per_s or None
        )

    def _pause(self, seconds: float) -> bool:
        """Wait, but not longer than until a cancel or a crash. True if one of them came."""
        end = time.monotonic() + seconds
        while not self._cancelled.is_set() and self._crash is None and (left := end - time.monotonic()) > 0:
            self._cancelled.wait(min(left, 0.02))
        return self._cancelled.is_set() or self._crash is not None


def round_finished(
    index: int,
    texts: Sequence[str],
    drafted: int,
    drafter: DrafterKind = DrafterKind.lookup,
    *,
    request_id: int = 0,
    pacing: PacingReport | None = None,
) -> RoundFinished:
    """A round whose last text is the target's own token and whose other texts were accepted."""
    accepted = len(texts) - 1 if drafted else 0
    last = TokenSource.plain if not drafted else TokenSource.bonus if accepted == drafted else TokenSource.recovered
    sources = [TokenSource.draft if i < accepted else last for i in range(len(texts))]
    tokens = tuple(Token(1000 + i, source, text) for i, (source, text) in enumerate(zip(sources, texts, strict=True)))
    rejected = drafted - accepted
    r = Round(
        index, drafter, tokens, drafted, accepted, rejected, 0, RoundTimes(0.002, 0.015, 0.001), ("?",) * rejected
    )
    spans = tuple(Span(token.text, token.source, drafter) for token in tokens)
    return RoundFinished(request_id, r, spans, context_used=40 + index, pacing=pacing)


def finished(
    request_id: int = 0,
    reason: StopReason = StopReason.end_of_turn,
    *,
    tokens: int = 0,
    seconds: float = 1.0,
    tokens_per_s: float | None = None,
    error: Fault | None = None,
    pacing: PacingReport | None = None,
    experience: dict[str, Any] | None = None,
) -> GenerationFinished:
    timing = Timing(0.0, 0.1, 0.1, seconds, 0.1, 0.8, 0.1, tokens_per_s)
    return GenerationFinished(request_id, reason, 7, 40, 0, tokens, timing, (), error, pacing, experience)
