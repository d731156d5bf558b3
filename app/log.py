"""One rotating log file for each process; nothing is sent anywhere."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys

from app import paths


def start(process: str) -> None:
    """Log to `<log folder>/<process>.log`, and to stderr if SLIPSTREAM_LOG is set. A full disk stops nothing."""
    handlers: list[logging.Handler] = []
    try:
        paths.log_folder().mkdir(parents=True, exist_ok=True)
        file = paths.log_folder() / f"{process}.log"
        handlers.append(logging.handlers.RotatingFileHandler(file, maxBytes=1_000_000, backupCount=2, encoding="utf-8"))
    except OSError:
        pass  # a read-only home must not keep anyone from chatting
    if os.environ.get("SLIPSTREAM_LOG") and sys.stderr is not None:
        handlers.append(logging.StreamHandler())
    logging.raiseExceptions = False
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        handlers=handlers or [logging.NullHandler()],
        force=True,
    )
