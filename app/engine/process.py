"""One worker process as the client sees it: commands go in, events and at last its end come out."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app import paths
from app.engine.protocol import (
    PROTOCOL_VERSION,
    Command,
    ProtocolError,
    Shutdown,
    WorkerAborted,
    WorkerEvent,
    WorkerStarted,
    decode,
    encode,
)

_log = logging.getLogger(__name__)

WORKER_ARGUMENT = "--engine-worker"
_PATIENCE_S = 3.0  # for a worker that was asked to end


@dataclass(frozen=True)
class WorkerEnded:
    """The process is gone. `last_words` is llama.cpp's message before an abort, or what stderr said last."""

    exit_status: int | None
    last_words: str


def worker_command() -> list[str]:
    """The same executable with an argument. `-P` keeps the current folder out of the module path."""
    if getattr(sys, "frozen", False):
        return [sys.executable, WORKER_ARGUMENT]
    return [sys.executable, "-P", "-m", "app", WORKER_ARGUMENT]


class WorkerProcess:
    """Starts a worker at once. `on_event` is called from a thread of its own, WorkerEnded exactly once and last."""

    def __init__(
        self,
        on_event: Callable[[WorkerProcess, WorkerEvent | WorkerEnded], None],
        command: Sequence[str] | None = None,
    ) -> None:
        self._on_event = on_event
        self._last_words = ""
        self._stderr: deque[str] = deque(maxlen=20)
        # llama.cpp looks for back ends in the current folder, so that must be one nobody else writes to.
        paths.data_folder().mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            list(command or worker_command()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=paths.data_folder(),
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},  # an abort shall not start a debugger
        )
        self._stderr_reader = threading.Thread(target=self._read_stderr, name="worker-stderr", daemon=True)
        self._reader = threading.Thread(target=self._read, name="worker-events", daemon=True)
        self._stderr_reader.start()
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Command) -> None:
        """A worker that is gone says so by WorkerEnded, not here."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(encode(command))
            self._process.stdin.flush()

    def close(self) -> None:
        """Ask the worker to end, and end it if it does not. Returns when it is gone."""
        self.send(Shutdown())
        self._close_stdin()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join(_PATIENCE_S)

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                try:
                    event = decode(line)
                    if isinstance(event, WorkerStarted) and event.protocol != PROTOCOL_VERSION:
                        raise ProtocolError(f"a worker of protocol {event.protocol}, not {PROTOCOL_VERSION}")
                except ProtocolError as error:
                    _log.error("%s", error)
                    self._last_words = "the engine's process is of another version. Install Slipstream again."
                    self._process.kill()
                    break
                if isinstance(event, WorkerAborted):
                    self._last_words = event.text
                    _log.error("llama.cpp: %s", event.text)
                self._on_event(self, event)  # type: ignore[arg-type]
        status = self._process.wait()
        self._close_stdin()
        self._stderr_reader.join(_PATIENCE_S)
        self._on_event(self, WorkerEnded(status, self._last_words))

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                _log.info("worker: %s", line.decode(errors="replace").rstrip())
