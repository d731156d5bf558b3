"""Progress of a long command on a terminal."""

from __future__ import annotations

import sys


class Progress:
    """One line on standard error that is written over and over, where that is a terminal."""

    def __init__(self) -> None:
        self._err = sys.stderr
        self._is_shown = self._err.isatty()

    def show(self, text: str) -> None:
        if self._is_shown:
            self._err.write(f"\r\x1b[K{text}")
            self._err.flush()

    def clear(self) -> None:
        self.show("")
