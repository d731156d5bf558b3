"""The check for leaks knows Qt's timers and threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject, QThread, QTimer
from PySide6.QtWidgets import QApplication

from tests.support import leaks
from tests.support.leaks import LeakWatch

LONG = 60_000  # ms


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, qapp: QApplication) -> Iterator[LeakWatch]:
    monkeypatch.setattr(leaks, "GRACE", 0.3)
    with pytest.MonkeyPatch.context() as patch:
        yield LeakWatch(patch)


def test_a_running_timer_is_a_leak_until_it_stops(watch: LeakWatch, qapp: QApplication) -> None:
    before = watch.running()
    timer = QTimer(qapp)
    timer.start(LONG)
    assert watch.left_behind(before) == {timer}
    leaks.stop(timer)
    assert watch.left_behind(before) == set()


def test_a_timer_that_only_a_cycle_holds_is_no_leak(watch: LeakWatch) -> None:
    class Owner:
        def __init__(self) -> None:
            self.timer = QTimer()
            self.timer.timeout.connect(self.on_timeout)
            self.itself = self

        def on_timeout(self) -> None: ...

    before = watch.running()
    Owner().timer.start(LONG)
    assert watch.left_behind(before) == set()


def test_a_timer_of_a_deleted_owner_is_no_leak(watch: LeakWatch) -> None:
    before = watch.running()
    owner = QObject()
    timer = QTimer(owner)
    timer.start(LONG)
    owner.deleteLater()
    assert watch.left_behind(before) == set()


def test_a_running_thread_is_a_leak_until_it_ends(watch: LeakWatch) -> None:
    before = watch.running()
    thread = QThread()
    thread.start()
    assert watch.left_behind(before) == {thread}
    thread.quit()
    thread.wait()
    assert watch.left_behind(before) == set()
