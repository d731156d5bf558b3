"""How long the interface's thread is blocked while an answer streams in: `python -m tests.benchmarks.interface`.

Opens the real window (offscreen without a display) and streams Markdown from an engine without models. Two measures:
every event that is dispatched is timed from its start to its end, and a heartbeat notes how late it beats.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtWidgets import QApplication

from app.engine.protocol import Event, RoundFinished
from app.storage.settings import SettingsStore
from app.ui.application import apply_look, keep_startup_out_of_collections, load_first_pair
from app.ui.chats import SessionState
from app.ui.session import Session
from app.ui.theme import Appearance
from app.ui.window import MainWindow
from tests.support.fake_engine import ANSWER, FakeEngine

HEARTBEAT_MS = 2
QUESTION = "Write a long answer with lists and code."


class TimedApplication(QApplication):
    """Times each outermost dispatch; what an event sends on the way belongs to it."""

    is_timing = False  # the first events arrive while Qt still builds the object
    _depth = 0

    def __init__(self) -> None:
        self.blocked: list[float] = []  # seconds
        super().__init__(sys.argv[:1])
        self.setStyle("Fusion")

    def notify(self, receiver: QObject, event: QEvent) -> bool:
        if not self.is_timing or self._depth:
            return super().notify(receiver, event)
        self._depth += 1
        start = time.perf_counter()
        try:
            return super().notify(receiver, event)
        finally:
            self._depth -= 1
            self.blocked.append(time.perf_counter() - start)


class Heartbeat(QObject):
    """How much later than due a precise timer fires: the longest wait of a key press."""

    def __init__(self) -> None:
        super().__init__()
        self.lateness: list[float] = []  # seconds
        self._due = 0.0
        self._timer = QTimer(self, interval=HEARTBEAT_MS, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._beat)

    def start(self) -> None:
        self._due = time.perf_counter() + HEARTBEAT_MS / 1000
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    def _beat(self) -> None:
        now = time.perf_counter()
        self.lateness.append(max(0.0, now - self._due))
        self._due = now + HEARTBEAT_MS / 1000


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def report(name: str, values: Sequence[float]) -> None:
    figures = "  ".join(
        f"{label} {percentile(values, share) * 1000:6.2f}"
        for label, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
    )
    print(f"{name:<22}{figures}  ms   ({len(values):,} samples)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=200.0, help="tokens per second")
    parser.add_argument("--sources", action="store_true", help="with the colours of the sources in the transcript")
    arguments = parser.parse_args()

    app = TimedApplication()
    engine = FakeEngine(answer=ANSWER + "\n", tokens_per_s=arguments.rate, repeat_answer=True)
    shown = 0
    sent = 0

    def count_sent(event: Event) -> None:
        nonlocal sent
        sent += len(event.round.tokens) if isinstance(event, RoundFinished) else 0

    def count_shown(rounds: list) -> None:
        nonlocal shown
        shown += sum(len(r.tokens) for r in rounds)

    engine.subscribe(count_sent)
    with tempfile.TemporaryDirectory() as folder:
        store = SettingsStore(Path(folder) / "settings.json")
        store.settings.show_sources = arguments.sources
        appearance = Appearance()
        apply_look(app, appearance)
        session = Session(engine, store.settings)
        session.rounds_arrived.connect(count_shown)
        window = MainWindow(session, store, appearance, None)
        window.show()
        keep_startup_out_of_collections()
        heartbeat = Heartbeat()

        def begin() -> None:
            if session.state is not SessionState.idle or session.is_answering:
                return
            session.state_changed.disconnect(begin)
            QTimer.singleShot(500, start_answer)

        def start_answer() -> None:
            app.is_timing = True
            heartbeat.start()
            session.send(QUESTION)
            QTimer.singleShot(round(arguments.seconds * 1000), end)

        def end() -> None:
            app.is_timing = False
            heartbeat.stop()
            session.answer_finished.connect(app.quit)
            session.stop()

        session.state_changed.connect(begin)
        QTimer.singleShot(0, lambda: load_first_pair(session, window, store.settings, Path("/models/model.gguf")))
        app.exec()
        # What the transcript has at the end is compared with what the engine sent.
        text = "".join(span.text for message in window.transcript.shown() for span in message.spans)
        window.close()
        engine.close()
        session.close()

    print(f"{arguments.rate:.0f} tokens/s for {arguments.seconds:.0f} s, {sent:,} tokens, {len(text):,} characters")
    report("blocked per dispatch", app.blocked)
    report("heartbeat late by", heartbeat.lateness)
    over = sum(blocked > 0.016 for blocked in app.blocked)
    print(f"dispatches over 16 ms: {over:,}; tokens dropped: {sent - shown:,}")
    return 0 if sent == shown else 1


if __name__ == "__main__":
    sys.exit(main())
