"""From the engine's thread to Qt: one signal per type of event, and a queue for the rounds, which are too many."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, SignalInstance

from app.engine.protocol import (
    DevicesListed,
    EngineDied,
    Event,
    GenerationFinished,
    GenerationStarted,
    LoadFailed,
    LoadProgressed,
    PairChecked,
    PairLoaded,
    PromptProgressed,
    RoundFinished,
    WorkerAborted,
    WorkerStarted,
)

if TYPE_CHECKING:
    from app.engine.client import ChatEngine


class EngineBridge(QObject):
    """Signals carry the event itself and arrive on the interface's thread; `take_rounds` empties the queue."""

    worker_started = Signal(object)
    worker_aborted = Signal(object)
    devices_listed = Signal(object)
    load_progressed = Signal(object)
    pair_loaded = Signal(object)
    load_failed = Signal(object)
    pair_checked = Signal(object)
    generation_started = Signal(object)
    prompt_progressed = Signal(object)
    generation_finished = Signal(object)
    engine_died = Signal(object)

    def __init__(self, engine: ChatEngine, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rounds: deque[RoundFinished] = deque()
        self._signals: dict[type, SignalInstance] = {
            WorkerStarted: self.worker_started,
            WorkerAborted: self.worker_aborted,
            DevicesListed: self.devices_listed,
            LoadProgressed: self.load_progressed,
            PairLoaded: self.pair_loaded,
            LoadFailed: self.load_failed,
            PairChecked: self.pair_checked,
            GenerationStarted: self.generation_started,
            PromptProgressed: self.prompt_progressed,
            GenerationFinished: self.generation_finished,
            EngineDied: self.engine_died,
        }
        self._unsubscribe = engine.subscribe(self._on_event)

    def take_rounds(self) -> list[RoundFinished]:
        """The rounds that came since the last call, oldest first."""
        rounds: list[RoundFinished] = []
        while self._rounds:
            rounds.append(self._rounds.popleft())
        return rounds

    def close(self) -> None:
        self._unsubscribe()

    def _on_event(self, event: Event) -> None:  # on the engine's thread
        if isinstance(event, RoundFinished):
            self._rounds.append(event)
        else:
            self._signals[type(event)].emit(event)
