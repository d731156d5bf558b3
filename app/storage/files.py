"""Files that are written in one step: after a crash the old one or the new one is there, never half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: str, *, is_precious: bool = True) -> None:
    """Write `content` as UTF-8 in the place of what is there, folders included. Raises OSError.

    Precious content is on the disk when this returns; other content is spared the wait of some milliseconds.
    """
    part: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            if is_precious:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        if part is not None:
            Path(part).unlink(missing_ok=True)
        raise
