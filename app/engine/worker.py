"""The engine's own process: reads commands from standard input, writes events to standard output.

llama.cpp ends its process in some twenty ordinary situations; here it takes only itself down. One thread reads
commands, so that Cancel is seen while the other one decodes.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from app import log
from app.engine import pair
from app.engine.answering import AnswerRequest
from app.engine.llama import CancelFlag, Library
from app.engine.loaded import LoadedPair
from app.engine.model import Model
from app.engine.protocol import (
    PROTOCOL_VERSION,
    Cancel,
    CheckPair,
    Command,
    DevicesListed,
    Fault,
    Generate,
    ListDevices,
    LoadFailed,
    LoadPair,
    LoadProgressed,
    NextScored,
    PairChecked,
    PairLoaded,
    ScoreNext,
    Shutdown,
    WorkerAborted,
    WorkerEvent,
    WorkerStarted,
    decode,
    encode,
)
from app.engine.scoring import best_next
from app.errors import CancelledError, SlipstreamError

_log = logging.getLogger(__name__)


class Worker:
    """Carries out commands one after the other. `send` may be called from any thread."""

    def __init__(self, commands: BinaryIO, events: BinaryIO) -> None:
        self._commands = commands
        self._events = events
        self._outbox: queue.SimpleQueue[WorkerEvent | None] = queue.SimpleQueue()
        self._jobs: queue.SimpleQueue[tuple[int, Command]] = queue.SimpleQueue()
        self._cancel = CancelFlag()
        self._cancelling = threading.Lock()
        self._last_job = 0
        self._cancelled_to = 0  # jobs up to this number are not wanted any more
        self._library = Library(on_abort=self._on_abort)
        self._writer = threading.Thread(target=self._write_events, name="events", daemon=True)
        self._pair = LoadedPair(self._library, self._cancel)
        self._load_s = 0.0

    def run(self) -> None:
        """Until Shutdown or the end of standard input."""
        self._writer.start()
        self.send(WorkerStarted(PROTOCOL_VERSION, self._library.version, os.getpid()))
        threading.Thread(target=self._read_commands, name="commands", daemon=True).start()
        while True:
            number, command = self._jobs.get()
            with self._cancelling:
                is_wanted = number > self._cancelled_to
                if is_wanted:
                    self._cancel.clear()
            if isinstance(command, Shutdown):
                break
            self._carry_out(command)
        self._pair.close()
        self._outbox.put(None)
        self._writer.join()

    def send(self, event: WorkerEvent) -> None:
        """Events are written by a thread of their own, while the next round decodes."""
        self._outbox.put(event)

    def _write_events(self) -> None:
        while (event := self._outbox.get()) is not None:
            try:
                self._events.write(encode(event))
                self._events.flush()
            except OSError:
                return  # the front end is gone; the end of its commands ends the worker

    def _on_abort(self, text: str) -> None:
        """llama.cpp is about to end the process: nothing may stay in the outbox."""
        self.send(WorkerAborted(text))
        self._outbox.put(None)
        self._writer.join(timeout=1)

    def _read_commands(self) -> None:
        """Ends with the front end, without which nobody reads an answer, and with a command that cannot be read."""
        try:
            for line in self._commands:
                command = decode(line)
                if not isinstance(command, Cancel | Shutdown):
                    self._last_job += 1
                    self._jobs.put((self._last_job, command))  # type: ignore[arg-type]
                    continue
                self._cancel_all()
                if isinstance(command, Shutdown):
                    break
        finally:
            self._cancel_all()
            self._jobs.put((self._last_job, Shutdown()))

    def _cancel_all(self) -> None:
        """Whatever was asked for so far is not wanted any more."""
        with self._cancelling:
            self._cancelled_to = self._last_job
            self._cancel.set()

    def _carry_out(self, command: Command) -> None:
        match command:
            case LoadPair():
                self._load(command)
            case CheckPair():
                self.send(self._check(command))
            case Generate():
                self._generate(command)
            case ScoreNext():
                self._score(command)
            case ListDevices():
                library = self._library
                self.send(
                    DevicesListed(
                        library.devices(),
                        library.version,
                        library.system_info,
                        library.supports_gpu_offload,
                        library.supports_rpc,
                    )
                )

    # -- loading ---------------------------------------------------------------------------------------------------

    def _load(self, command: LoadPair) -> None:
        started = time.perf_counter()
        shown = {"target": -1, "draft": -1}

        def progress(part: str, fraction: float) -> None:
            percent = int(fraction * 100)
            if percent > shown[part]:  # a new group of tensors starts from 0 again; a bar must not jump back
                shown[part] = percent
                self.send(LoadProgressed(part, fraction))  # type: ignore[arg-type]

        try:
            with _bugs_as_errors():
                if self._cancel.is_set():
                    raise CancelledError("Loading was stopped.")
                self._pair.load(command, progress)
        except SlipstreamError as error:
            self.send(LoadFailed(Fault.of(error), kept=self._pair.is_loaded))
            return
        self._load_s = time.perf_counter() - started
        gc.collect()
        gc.freeze()  # vocabularies are large and stay; a collection in a round must not walk them
        self.send(PairLoaded(self._pair.target_info(), self._pair.draft_info(), self._pair.draft_problem, self._load_s))

    def _check(self, command: CheckPair) -> PairChecked:
        with contextlib.ExitStack() as opened:
            try:
                opened.enter_context(_bugs_as_errors())
                target = opened.enter_context(self._peek(command.target))
                if command.draft is None:
                    return PairChecked(command.target, None, True, "This model can be used.", target.info())
                draft = opened.enter_context(self._peek(command.draft))
            except SlipstreamError as error:
                return PairChecked(command.target, command.draft, False, str(error))
            verdict = pair.check(target.vocabulary, draft.vocabulary)
            return PairChecked(
                command.target,
                command.draft,
                verdict.fits,
                verdict.reason,
                target.info(),
                draft.info(),
                verdict.translates,
            )

    def _peek(self, path: str) -> contextlib.closing[Model]:
        return contextlib.closing(Model(self._library, Path(path), vocab_only=True))

    # -- generating ------------------------------------------------------------------------------------------------

    def _generate(self, command: Generate) -> None:
        request = AnswerRequest(command, self._pair, self._cancel.is_set, self.send, self._load_s)
        try:
            with _bugs_as_errors():
                request.answer()
        except SlipstreamError as error:
            request.give_up(error)

    def _score(self, command: ScoreNext) -> None:
        try:
            with _bugs_as_errors():
                self.send(NextScored(command.request_id, best_next(self._pair, command)))
        except SlipstreamError as error:
            self.send(NextScored(command.request_id, error=Fault.of(error)))


@contextlib.contextmanager
def _bugs_as_errors() -> Iterator[None]:
    """A bug of ours ends the command with a sentence, not the process with the models in it."""
    try:
        yield
    except SlipstreamError:
        raise
    except Exception as error:
        _log.exception("a command failed")
        raise SlipstreamError(f"An error inside Slipstream: {error!r}. The engine's log file tells more.") from error


def main() -> int:
    """Run a worker on this process's standard streams."""
    log.start("engine")
    # Events go to a private copy of standard output: a stray print must not end up between them.
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    Worker(sys.stdin.buffer, events).run()
    return 0
