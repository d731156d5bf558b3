"""What the engine learned about each pair of models on this machine, kept from run to run: one small file a pair.

The contents are the engine's own (`app.engine.experience`); here they are a dict that is stored and given back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from pathlib import Path
from typing import Any, Protocol

from app.chat import ModelPair
from app.storage.files import replace_file

log = logging.getLogger(__name__)

MOST_KEPT = 200


class Setup(Protocol):
    """How a pair is loaded, as far as it changes what a round costs. The context length does not."""

    @property
    def threads(self) -> int | None: ...
    @property
    def gpu_layers(self) -> int | None: ...


class ExperienceStore:
    """A file that is damaged, or about files that have changed, is ignored: the pair is learned again in seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, pair: ModelPair, setup: Setup) -> dict[str, Any] | None:
        """None if nothing is known of this pair, loaded this way."""
        about = _about(pair, setup)
        if about is None:
            return None
        try:
            kept = json.loads(self._file(about).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # not readable, not JSON, not UTF-8
            log.warning("experience of %s: %s", pair.target, error)
            return None
        if not isinstance(kept, dict) or kept.get("pair") != about:
            return None
        experience = kept.get("experience")
        return experience if isinstance(experience, dict) else None

    def save(self, pair: ModelPair, setup: Setup, experience: dict[str, Any]) -> None:
        """A failure is only logged: it costs the next run a few rounds."""
        about = _about(pair, setup)
        if about is None:
            return
        file = self._file(about)
        is_new = not file.exists()
        try:
            replace_file(file, json.dumps({"pair": about, "experience": experience}) + "\n", is_precious=False)
        except (OSError, TypeError, ValueError) as error:
            log.warning("experience of %s: %s", pair.target, error)
            return
        if is_new:
            self._thin()

    def _file(self, about: dict[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        return self._folder / f"{digest[:32]}.json"

    def _thin(self) -> None:
        """Keep what was saved last. A file that another window has just removed is none to keep."""
        found: list[tuple[int, Path]] = []
        for file in self._folder.glob("*.json"):
            with contextlib.suppress(OSError):
                found.append((file.stat().st_mtime_ns, file))
        for _, file in sorted(found, reverse=True)[MOST_KEPT:]:
            with contextlib.suppress(OSError):
                file.unlink()


def _about(pair: ModelPair, setup: Setup) -> dict[str, Any] | None:
    """What the experience is of; None if a file is gone."""
    try:
        return {
            "target": _facts(pair.target),
            "draft": None if pair.draft is None else _facts(pair.draft),
            "threads": setup.threads,
            "gpu_layers": setup.gpu_layers,
        }
    except OSError:
        return None


def _facts(file: Path) -> dict[str, Any]:
    facts = file.stat()
    return {"file": str(file.absolute()), "size": facts.st_size, "modified_ns": facts.st_mtime_ns}
