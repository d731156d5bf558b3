"""From the start of the process to a window on the screen, with the real engine loading behind it.

    python -m tests.benchmarks.startup [--runs 5]

Needs a display. A window counts when the X server (or the platform) has exposed it; the first run warms the disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

_PROGRAM = """
import sys, time
from PySide6.QtCore import QEvent, QObject
from app import main
from app.ui import window

class Exposed(QObject):
    def eventFilter(self, one, event):
        if event.type() == QEvent.Type.Expose and one.isExposed():
            print(time.time(), flush=True)
            one.removeEventFilter(self)
        return False

watch = Exposed()
show = window.MainWindow.showEvent

def show_event(self, event):
    show(self, event)
    self.windowHandle().installEventFilter(watch)

window.MainWindow.showEvent = show_event
sys.exit(main.main([]))
"""


def start() -> float:
    """Seconds until the window is exposed."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "SLIPSTREAM_HOME": home}
        began = time.time()
        program = subprocess.Popen([sys.executable, "-c", _PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
        assert program.stdout is not None
        line = program.stdout.readline()
        program.terminate()
        program.wait()
        program.stdout.close()
    return float(line) - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    start()
    times = [start() for _ in range(options.runs)]
    spread = f"{min(times):.2f} to {max(times):.2f}"
    print(f"window after {statistics.median(times):.2f} s (median of {options.runs}; {spread})")


if __name__ == "__main__":
    main()
