"""The composition root: builds the parts and hands them to a front end.

`slipstream` opens the window, `slipstream ask …` and its siblings use the terminal, and with the worker's argument the
same program is the engine's own process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from app import log, paths
from app.engine.process import WORKER_ARGUMENT

_NO_DISPLAY = 'There is no display to open a window on. In a terminal, use: slipstream ask "your question"'


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == [WORKER_ARGUMENT]:
        from app.engine import worker  # noqa: PLC0415 (only this process may load llama.cpp)

        return worker.main()
    if arguments:
        from app.cli import commands  # noqa: PLC0415 (each front end loads only itself)

        return commands.run(arguments)
    return _open_window()


def _open_window() -> int:
    if not _has_display():
        sys.stderr.write(_NO_DISPLAY + "\n")
        return 2
    log.start("window")
    from app.engine.client import Engine  # noqa: PLC0415
    from app.storage.experiences import ExperienceStore  # noqa: PLC0415
    from app.storage.settings import SettingsStore  # noqa: PLC0415
    from app.ui import application  # noqa: PLC0415

    store = SettingsStore(paths.settings_file())
    store.load()
    engine = Engine()
    try:
        return application.run(engine, store, paths.starter_model(), ExperienceStore(paths.experience_folder()))
    finally:
        engine.close()


def _has_display() -> bool:
    if sys.platform in ("win32", "darwin") or "QT_QPA_PLATFORM" in os.environ:
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
