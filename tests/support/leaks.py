"""Finds what a test left running: Python threads, child processes, and Qt's threads and timers."""

from __future__ import annotations

import gc
import importlib.util
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import pytest

GRACE = 3.0  # seconds in which what is ending already may end


class LeakWatch:
    """Notes everything that starts, for as long as `patch` lasts, and tells what of it runs."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._started: WeakSet[Any] = WeakSet()
        self._has_qt = has_qt()
        self._note_calls(patch, subprocess.Popen, "__init__")
        if self._has_qt:
            from PySide6.QtCore import QThread, QTimer  # noqa: PLC0415 (absent in the run without Qt)

            self._note_calls(patch, QThread, "start")
            self._note_calls(patch, QTimer, "start")

    def running(self) -> set[Any]:
        """What runs now and would outlive the test: no daemon threads, and not the main thread."""
        threads = {t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()}
        return threads | set(multiprocessing.active_children()) | {one for one in self._started if _runs(one)}

    def left_behind(self, before: set[Any]) -> set[Any]:
        """What runs now and did not before, after a moment of grace."""
        deadline = time.monotonic() + GRACE
        while self.running() - before and time.monotonic() < deadline:
            gc.collect()  # what only a reference cycle holds is no leak
            if self._has_qt:
                _deliver_events()
            time.sleep(0.02)
        return self.running() - before

    def _note_calls(self, patch: pytest.MonkeyPatch, cls: type, name: str) -> None:
        original: Callable[..., Any] = getattr(cls, name)

        def noting(one: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(one, *args, **kwargs)
            self._started.add(one)
            return result

        patch.setattr(cls, name, noting)


def has_qt() -> bool:
    try:
        return importlib.util.find_spec("PySide6") is not None
    except ModuleNotFoundError:  # hidden by conftest
        return False


def describe(leak: Any) -> str:
    if isinstance(leak, subprocess.Popen):
        return f"child process {leak.pid}: {leak.args!r}"
    return f"{type(leak).__name__} {leak!r}"


def stop(leak: Any) -> None:
    """End a leak as far as it can be ended from outside, so that it does not disturb the tests that follow."""
    if isinstance(leak, subprocess.Popen):
        leak.kill()
        leak.wait()
    elif not isinstance(leak, threading.Thread) and hasattr(leak, "stop"):  # a QTimer
        leak.stop()


def _runs(one: Any) -> bool:
    if isinstance(one, subprocess.Popen):
        return one.poll() is None
    import shiboken6  # noqa: PLC0415 (absent in the run without Qt)

    if not shiboken6.isValid(one):
        return False
    return bool(one.isActive() if hasattr(one, "isActive") else one.isRunning())


def _deliver_events() -> None:
    """Let pending deletions and the ends of threads arrive."""
    qt = sys.modules.get("PySide6.QtCore")
    if qt is None or qt.QCoreApplication.instance() is None:
        return
    qt.QCoreApplication.sendPostedEvents(None, qt.QEvent.Type.DeferredDelete)
    qt.QCoreApplication.processEvents()
