"""The engine as its front ends see it: a background thread that owns the worker's process.

`Engine` sends commands, hands events to its listeners, restarts a worker that died, and loads again what was loaded.
Every `request_…` returns at once. The blocking calls below them serve the terminal and the tests.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol, Self

from app.chat import Message, ModelPair
from app.engine.causes import Death, explain_death
from app.engine.process import WorkerEnded, WorkerProcess
from app.engine.protocol import (
    Cancel,
    CheckPair,
    Command,
    DevicesListed,
    EngineDied,
    Event,
    Fault,
    Generate,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    ListDevices,
    LoadFailed,
    LoadOptions,
    LoadPair,
    NextScored,
    PairChecked,
    PairLoaded,
    ScoreNext,
    Timing,
    WorkerEvent,
)
from app.engine.rounds import StopReason
from app.errors import EngineDiedError

_log = logging.getLogger(__name__)

Listener = Callable[[Event], None]

_INSPECTOR_IDLE_S = 30.0  # a worker that only reads headers is kept so long for the next question
_MOST_RESTARTS, _RESTART_WINDOW_S = 3, 60.0


class ChatEngine(Protocol):
    """What a front end may ask of an engine."""

    def subscribe(self, listener: Listener) -> Callable[[], None]: ...
    def request_load(
        self, pair: ModelPair, options: LoadOptions | None = None, experience: dict[str, Any] | None = None
    ) -> None: ...
    def request_check(self, pair: ModelPair) -> None: ...
    def request_generation(self, request: GenerationRequest) -> int: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class _Close:
    pass


_Item = tuple[WorkerProcess | None, Command | WorkerEvent | WorkerEnded | _Close]


class Engine:
    """See the module. Usable from any thread; listeners are called on the engine's own."""

    def __init__(self, worker_command: Sequence[str] | None = None) -> None:
        self._worker_command = worker_command
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._listeners: list[Listener] = []
        self._ids = itertools.count(1)
        self._is_closed = False
        # Of the engine's thread only:
        self._worker: WorkerProcess | None = None
        self._inspector: WorkerProcess | None = None
        self._wanted: LoadPair | None = None  # what is loaded, or loading, or comes back after a restart
        self._loaded: LoadPair | None = None  # what was loaded last
        self._loads_running = 0
        self._gpu_layers = 0  # of the target, as loaded
        self._answers: dict[int, Generate | None] = {}  # without GenerationFinished; None once it has started
        self._sent_again: set[int] = set()
        self._scorings: set[int] = set()  # without NextScored
        self._asked_for_devices = False
        self._lacks_instruction = False  # of this processor; holds for every load from then on
        self._checks: list[CheckPair] = []
        self._restarts: list[float] = []
        self._thread = threading.Thread(target=self._run, name="slipstream-engine", daemon=True)
        self._thread.start()

    # -- for any thread --------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every event from now on; the returned function ends that."""
        self._listeners = [*self._listeners, listener]

        def unsubscribe() -> None:
            self._listeners = [other for other in self._listeners if other is not listener]

        return unsubscribe

    def request_load(
        self, pair: ModelPair, options: LoadOptions | None = None, experience: dict[str, Any] | None = None
    ) -> None:
        """Answered by LoadProgressed, then PairLoaded or LoadFailed. `experience`: see LoadPair."""
        target, draft = str(pair.target.absolute()), str(pair.draft.absolute()) if pair.draft else None
        self._put(LoadPair(target, draft, options or LoadOptions(), experience))

    def request_check(self, pair: ModelPair) -> None:
        """Answered by PairChecked, even while an answer is being written: another process reads the files."""
        target, draft = str(pair.target.absolute()), str(pair.draft.absolute()) if pair.draft else None
        self._put(CheckPair(target, draft))

    def request_devices(self) -> None:
        """Answered by DevicesListed."""
        self._put(ListDevices())

    def request_generation(self, request: GenerationRequest) -> int:
        """Answered by GenerationStarted, RoundFinished …, and exactly one GenerationFinished with the returned id."""
        request_id = next(self._ids)
        self._put(Generate(request_id, request))
        return request_id

    def request_score(
        self, messages: Sequence[Message], answer_tokens: Sequence[int], max_tokens: int | None = None
    ) -> int:
        """Answered by NextScored with the returned id."""
        request_id = next(self._ids)
        self._put(ScoreNext(request_id, tuple(messages), tuple(answer_tokens), max_tokens))
        return request_id

    def cancel(self) -> None:
        """Stop the load or the answer under way, within one decode."""
        self._put(Cancel())

    def close(self) -> None:
        """End the worker and the thread. Waits for both."""
        if not self._is_closed:
            self._is_closed = True
            self._inbox.put((None, _Close()))
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _put(self, command: Command) -> None:
        if not self._is_closed:
            self._inbox.put((None, command))

    # -- blocking --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def load(
        self, pair: ModelPair, options: LoadOptions | None = None, experience: dict[str, Any] | None = None
    ) -> PairLoaded:
        """Load and wait. Raises the SlipstreamError of a failed load."""
        with self._events() as events:
            self.request_load(pair, options, experience)
            for event in events:
                if isinstance(event, PairLoaded):
                    return event
                if isinstance(event, LoadFailed):
                    raise event.error.to_error()
        raise EngineDiedError("The engine was closed while it loaded.")

    def check(self, pair: ModelPair) -> PairChecked:
        with self._events() as events:
            self.request_check(pair)
            return next(event for event in events if isinstance(event, PairChecked))

    def devices(self) -> DevicesListed:
        """Raises EngineDiedError if not even the list of devices can be had."""
        with self._events() as events:
            self.request_devices()
            for event in events:
                if isinstance(event, DevicesListed):
                    return event
                if isinstance(event, EngineDied):
                    raise EngineDiedError(event.sentence)
        raise EngineDiedError("The engine was closed.")

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """The events of one answer, GenerationFinished last. Leaving the loop early cancels the answer."""
        with self._events() as events:
            request_id = self.request_generation(request)
            finished = False
            try:
                for event in events:
                    if getattr(event, "request_id", None) == request_id:
                        finished = isinstance(event, GenerationFinished)
                        yield event
                        if finished:
                            return
            finally:
                if not finished:
                    self.cancel()

    def score_next(
        self, messages: Sequence[Message], answer_tokens: Sequence[int], max_tokens: int | None = None
    ) -> NextScored:
        """The target's two best tokens behind an answer's first tokens. Raises the SlipstreamError that prevents it."""
        with self._events() as events:
            request_id = self.request_score(messages, answer_tokens, max_tokens)
            for event in events:
                if isinstance(event, NextScored) and event.request_id == request_id:
                    if event.error:
                        raise event.error.to_error()
                    return event
        raise EngineDiedError("The engine was closed.")

    @contextlib.contextmanager
    def _events(self) -> Iterator[Iterator[Event]]:
        received: queue.SimpleQueue[Event] = queue.SimpleQueue()
        unsubscribe = self.subscribe(received.put)

        def events() -> Iterator[Event]:
            while self._thread.is_alive() or not received.empty():
                with contextlib.suppress(queue.Empty):
                    yield received.get(timeout=0.5)

        try:
            yield events()
        finally:
            unsubscribe()

    # -- the engine's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                sender, item = self._inbox.get(timeout=_INSPECTOR_IDLE_S)
            except queue.Empty:
                if self._inspector and not self._checks:
                    self._end_inspector()
                continue
            if isinstance(item, _Close):
                break
            try:
                self._handle(sender, item)
            except OSError as error:
                _log.exception("the engine's process could not be started")
                sentence = f"The engine could not be started: {error.strerror or error}."
                self._fail_everything(sentence)
                self._refuse_checks(sentence)
                self._emit(EngineDied("The engine could not be started.", restarting=False, exit_status=None))
        if self._worker:
            self._worker.close()
        self._end_inspector()

    def _handle(self, sender: WorkerProcess | None, item: Command | WorkerEvent | WorkerEnded) -> None:
        match item:
            case LoadPair():
                self._start_load(item)
            case Generate():
                self._answers[item.request_id] = item
                self._ask_loaded(item)
            case ScoreNext():
                self._scorings.add(item.request_id)
                self._ask_loaded(item)
            case Cancel():
                if self._worker:
                    self._worker.send(item)
            case CheckPair():
                self._checks.append(item)
                self._running_inspector().send(item)
            case ListDevices():
                self._asked_for_devices = True
                self._running_inspector().send(item)
            case WorkerEnded():
                if sender is self._worker:
                    self._worker = None
                    self._on_death(item)
                elif sender is self._inspector:
                    self._inspector = None
                    self._on_inspector_death(item)
            case _:
                if sender in (self._worker, self._inspector):
                    self._note(item)
                    self._emit(item)  # type: ignore[arg-type]

    def _ask_loaded(self, command: Generate | ScoreNext) -> None:
        """Send what needs the models; they come back first if their worker has died."""
        if self._worker is None and self._wanted:
            self._start_load(self._wanted)
        self._running_worker().send(command)

    def _start_load(self, wanted: LoadPair) -> None:
        if self._lacks_instruction:
            wanted = replace(wanted, options=replace(wanted.options, use_extra_bufts=False))
        self._wanted = wanted
        self._loads_running += 1
        self._running_worker().send(wanted)

    def _note(self, event: object) -> None:
        """Keep track of what is still owed to the front end."""
        match event:
            case PairLoaded():
                self._loads_running -= 1
                self._loaded = self._wanted
                self._gpu_layers = event.target.gpu_layers
            case LoadFailed():
                self._loads_running -= 1
                if not self._loads_running:
                    self._wanted = self._loaded if event.kept else None
            case GenerationStarted() if event.request_id in self._answers:
                self._answers[event.request_id] = None
            case GenerationFinished():
                self._answers.pop(event.request_id, None)
            case NextScored():
                self._scorings.discard(event.request_id)
            case DevicesListed():
                self._asked_for_devices = False
            case PairChecked():
                self._checks = [c for c in self._checks if (c.target, c.draft) != (event.target, event.draft)]

    def _on_death(self, ended: WorkerEnded) -> None:
        """Say why, close what was open, and start again where that promises to go better."""
        death = explain_death(ended.exit_status, ended.last_words)
        _log.error("worker ended with %s: %s", ended.exit_status, death.sentence)
        self._lacks_instruction |= death.without_extra_bufts
        was_loading = self._loads_running > 0
        wanted = self._wanted
        safer = _safer(wanted, death, self._gpu_layers) if wanted else None

        now = time.monotonic()
        self._restarts = [at for at in self._restarts if now - at < _RESTART_WINDOW_S]
        # The same load would die the same way; and a worker that keeps dying is left to the user.
        may_restart = (
            safer is not None and (not was_loading or safer != wanted) and len(self._restarts) < _MOST_RESTARTS
        )
        self._wanted = safer  # the next message tries it, even where nothing restarts by itself
        # A message that met a dying worker is not lost: it goes to the next one, once.
        unread = (
            [c for c in self._answers.values() if c and c.request_id not in self._sent_again] if may_restart else []
        )
        self._fail_everything(death.sentence, but=unread)
        self._emit(EngineDied(death.sentence, may_restart, ended.exit_status))
        if may_restart and safer:
            self._restarts.append(now)
            self._start_load(safer)
            for command in unread:
                self._sent_again.add(command.request_id)
                self._running_worker().send(command)

    def _fail_everything(self, sentence: str, but: Sequence[Generate] = ()) -> None:
        fault = Fault.of(EngineDiedError(sentence))
        failed = [request_id for request_id, command in self._answers.items() if command not in but]
        for request_id in failed:
            del self._answers[request_id]
            timing = Timing(0.0, 0.0, None, 0.0, 0.0, 0.0, 0.0, None)
            self._emit(GenerationFinished(request_id, StopReason.failed, 0, 0, 0, 0, timing, (), fault))
        scorings, self._scorings = self._scorings, set()
        for request_id in scorings:
            self._emit(NextScored(request_id, error=fault))
        if self._loads_running:
            self._loads_running = 0
            self._emit(LoadFailed(fault))

    def _on_inspector_death(self, ended: WorkerEnded) -> None:
        self._refuse_checks(
            "One of these files crashes llama.cpp when it is opened. It may be damaged; download it again."
        )
        if self._asked_for_devices:
            self._asked_for_devices = False
            sentence = explain_death(ended.exit_status, ended.last_words).sentence
            self._emit(EngineDied(sentence, False, ended.exit_status))

    def _refuse_checks(self, reason: str) -> None:
        checks, self._checks = self._checks, []
        for check in checks:
            self._emit(PairChecked(check.target, check.draft, False, reason))

    def _running_worker(self) -> WorkerProcess:
        if self._worker is None:
            self._worker = WorkerProcess(self._receive, self._worker_command)
        return self._worker

    def _running_inspector(self) -> WorkerProcess:
        if self._inspector is None:
            self._inspector = WorkerProcess(self._receive, self._worker_command)
        return self._inspector

    def _end_inspector(self) -> None:
        if self._inspector:
            inspector, self._inspector = self._inspector, None
            inspector.close()

    def _receive(self, sender: WorkerProcess, event: WorkerEvent | WorkerEnded) -> None:
        self._inbox.put((sender, event))

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 (a listener's failure is the listener's)
                _log.exception("a listener failed on %s", type(event).__name__)


def _safer(wanted: LoadPair, death: Death, gpu_layers: int) -> LoadPair:
    """The same pair, loaded so that what killed the worker is less likely, where such a setting exists."""
    options = wanted.options
    if death.without_extra_bufts:
        options = replace(options, use_extra_bufts=False)
    if death.fewer_gpu_layers and gpu_layers > 0:
        options = replace(options, gpu_layers=gpu_layers // 2)
    return replace(wanted, options=options)
