"""What the application remembers between runs: one table of typed fields in one JSON file. Plain values only."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from app.storage.files import replace_file

log = logging.getLogger(__name__)

VERSION = 2
MAX_RECENT_FILES = 12

# Version 1 wrote these whether they had been chosen or not.
_USUAL_OF_VERSION_1 = {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0}


@dataclass
class Settings:
    """The field table: a name, the values it may take, and the value of a first start."""

    # the pair
    target: str | None = None  # None: the starter model
    draft: str | None = None
    drafter: Literal["auto", "model", "lookup", "none"] = "auto"  # auto: the draft model, if there is one, and lookup
    draft_length: Annotated[int, msgspec.Meta(ge=1, le=16)] | None = None  # None: automatic
    verify: Literal["rejection", "coupled"] = "rejection"
    context: Annotated[int, msgspec.Meta(ge=256, le=1 << 20)] = 4096  # tokens
    recent_files: list[str] = field(default_factory=list)  # newest first

    # sampling, by the names and definitions of the engine; None: never chosen, so as the model suggests, else the usual
    temperature: Annotated[float, msgspec.Meta(ge=0, le=5)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, msgspec.Meta(ge=1, le=2)] | None = None
    typical_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_n_sigma: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None
    dynatemp_range: Annotated[float, msgspec.Meta(ge=0, le=5)] | None = None
    dynatemp_exponent: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    repeat_last_n: Annotated[int, msgspec.Meta(ge=0, le=65536)] | None = None
    dry_multiplier: Annotated[float, msgspec.Meta(ge=0, le=5)] | None = None
    dry_base: Annotated[float, msgspec.Meta(ge=1, le=4)] | None = None
    dry_allowed_length: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    xtc_probability: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    xtc_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    mirostat: Annotated[int, msgspec.Meta(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, msgspec.Meta(ge=0, le=20)] | None = None
    mirostat_eta: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    order: list[str] | None = None  # of the samplers
    logit_bias: list[tuple[int, float]] | None = None  # token id, and what is added to its logit
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
            self.settings = msgspec.convert(_migrated(raw), Settings)
            known = {"version", *(f.name for f in fields(Settings))}
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
        content = {"version": VERSION} | self._unknown | asdict(self.settings)
        try:
            replace_file(self._path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            log.warning("settings file %s: %s", self._path, error)
            self.problem = f"The settings could not be saved: {error.strerror}."
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


def _migrated(raw: Any) -> Any:
    """What a file of any version says, in the words of this one."""
    if not isinstance(raw, dict) or "version" in raw:
        return raw
    usual = _USUAL_OF_VERSION_1
    return {key: value for key, value in raw.items() if key not in usual or value != usual[key]}
