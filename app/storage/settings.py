"""What the application remembers between runs: one table of typed fields in one JSON file. Plain values only."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

log = logging.getLogger(__name__)

MAX_RECENT_FILES = 12


@dataclass
class Settings:
    """The field table: a name, the values it may take, and the value of a first start."""

    # the pair
    target: str | None = None  # None: the starter model
    draft: str | None = None
    drafter: Literal["model", "lookup", "none"] = "lookup"
    draft_length: Annotated[int, msgspec.Meta(ge=1, le=16)] | None = None  # None: automatic
    context: Annotated[int, msgspec.Meta(ge=256, le=1 << 20)] = 4096  # tokens
    recent_files: list[str] = field(default_factory=list)  # newest first

    # sampling; top_k 0, top_p 1, min_p 0 and repeat_penalty 1 are off
    temperature: Annotated[float, msgspec.Meta(ge=0, le=5)] = 0.7
    top_k: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 40
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.95
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    repeat_penalty: Annotated[float, msgspec.Meta(ge=1, le=2)] = 1.0
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] | None = None  # None: a fresh one for every answer
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None  # None: as many as the context holds
    system_prompt: str = ""

    # the window
    theme: Literal["system", "light", "dark"] = "system"
    zoom: Annotated[float, msgspec.Meta(ge=0.75, le=2)] = 1.0
    window: list[int] = field(default_factory=list)  # x, y, width, height; empty: never placed
    is_maximized: bool = False
    sidebar_visible: bool = True
    panel_visible: bool = True
    show_sources: bool = False

    def remember_file(self, file: str) -> None:
        """Put a model file at the head of the recent ones."""
        others = [recent for recent in self.recent_files if recent != file]
        self.recent_files = [file, *others][:MAX_RECENT_FILES]


class SettingsStore:
    """Reads and writes the settings file. A file that cannot be read never keeps the application from starting."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unknown: dict[str, Any] = {}  # keys of another version, written back as they came
        self.settings = Settings()
        self.problem: str | None = None  # the last fault, as a sentence for the user

    def load(self) -> Settings:
        self.problem = None
        try:
            raw = json.loads(self._path.read_bytes())
            self.settings = msgspec.convert(raw, Settings)
            known = {f.name for f in fields(Settings)}
            self._unknown = {key: value for key, value in raw.items() if key not in known}
        except FileNotFoundError:
            self.settings = Settings()
        except OSError as error:
            self.settings = Settings()
            self.problem = f"The settings could not be read ({error.strerror}), so this run starts with the usual ones."
        except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or a value outside the table
            log.warning("settings file %s: %s", self._path, error)
            self.settings = Settings()
            self.problem = self._set_aside()
        return self.settings

    def save(self) -> bool:
        """Write the settings in one step: after a crash the old file or the new one is there, never half of one."""
        content = json.dumps(self._unknown | asdict(self.settings), indent=2, ensure_ascii=False)
        part: str | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(prefix=self._path.name, suffix=".part", dir=self._path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self._path)
        except OSError as error:
            log.warning("settings file %s: %s", self._path, error)
            self.problem = f"The settings could not be saved: {error.strerror}."
            if part is not None:
                Path(part).unlink(missing_ok=True)
            return False
        return True

    def _set_aside(self) -> str:
        damaged = self._path.with_name(self._path.name + ".damaged")
        try:
            os.replace(self._path, damaged)
        except OSError:
            return "The settings file is damaged, so this run starts with the usual settings."
        return (
            f"The settings file was damaged. It was set aside as {damaged.name}, and the usual settings are in force."
        )
