"""A timer that beats only while there is something to show."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer


class Pulse(QObject):
    """Calls `refresh` once an interval while asked to, and rests after an interval without asking."""

    def __init__(self, interval_ms: int, refresh: Callable[[], None], parent: QObject) -> None:
        super().__init__(parent)
        self._refresh = refresh
        self._is_asked = False
        self._timer = QTimer(self)
        self._timer.setInterval(interval_ms)
        self._timer.timeout.connect(self._on_timeout)

    @property
    def is_beating(self) -> bool:
        return self._timer.isActive()

    def start(self) -> None:
        """Ask for a refresh at the next beat."""
        self._is_asked = True
        if not self._timer.isActive():
            self._timer.start()

    def stop(self) -> None:
        self._is_asked = False
        self._timer.stop()

    def _on_timeout(self) -> None:
        if not self._is_asked:
            self._timer.stop()
            return
        self._is_asked = False
        self._refresh()
