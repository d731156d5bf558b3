"""From llama.cpp's log lines and the ways its process ends to sentences that name the cause and the way out."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import ModelFileError, OutOfMemoryError, SlipstreamError


@dataclass(frozen=True)
class _Cause:
    pattern: re.Pattern[str]
    sentence: str  # {file} and the pattern's groups {0}, {1} … are filled in
    error: type[SlipstreamError] = ModelFileError


def _cause(pattern: str, sentence: str, error: type[SlipstreamError] = ModelFileError) -> _Cause:
    return _Cause(re.compile(pattern, re.IGNORECASE), sentence, error)


# The first that matches wins: the telling lines stand before the general ones.
_LOAD_CAUSES = (
    _cause(
        r"unknown model architecture: '(?:clip|mmproj)'|architecture.*\bclip\b|CLIP cannot be used as main model",
        "{file} is a picture projector (mmproj), not a model that can chat. Choose the model it belongs to.",
    ),
    _cause(
        r"unknown model architecture: ''",
        "{file} does not say what kind of model it is. It may be an adapter, a vocabulary or an importance matrix.",
    ),
    _cause(
        r"unknown model architecture: '([^']*)'",
        "{file} is of the kind “{0}”, which this version cannot run. "
        "A newer version of Slipstream may; it may also not be a chat model.",
    ),
    _cause(
        r"unknown pre-tokenizer type: '([^']*)'|unknown tokenizer: '([^']*)'",
        "{file} splits text in a way this version does not know (“{0}”). A newer version of Slipstream may.",
    ),
    _cause(
        r"unable to allocate|failed to allocate|out of memory|cannot allocate memory|ErrorOutOfDeviceMemory",
        "{file} needs more memory than is free. Close other programs, choose a smaller file or a shorter context.",
        OutOfMemoryError,
    ),
    _cause(
        r"(?:GGUF|file) version \D*(\d+)|this GGUF file is version (\d+)",
        "{file} is a GGUF file of version {0}, which this version cannot read. Look for a newer file of the model.",
    ),
    _cause(
        r"within the file bounds|failed to read tensor|data is not within|unexpectedly reached end of file"
        r"|tensor .* is out of bounds|failed to read (?:magic|header|key|tensor)",
        "{file} is damaged or was not downloaded completely. Download it again.",
    ),
    _cause(
        r"bad magic|invalid magic",
        "{file} is not a GGUF file. Choose a model in GGUF format.",
    ),
    _cause(
        r"missing split|invalid split|split file|failed to load.*split",
        "{file} is one part of a model in several files, and a part is missing. Fetch all parts into one folder.",
    ),
    _cause(
        r"wrong number of tensors|wrong shape|missing tensor|done_getting_tensors|tensor '([^']*)' (?:not found|has)",
        "{file} is not built as its header says: weights are missing or of another shape. Download it again, "
        "or look for another conversion of the model.",
    ),
    _cause(r"permission denied", "{file} cannot be read: permission denied. Change the file's permissions."),
    _cause(r"no such file|failed to open", "There is no readable file {file} any more. Choose it again."),
)


def explain_load_failure(path: Path, log: Sequence[str]) -> SlipstreamError:
    """The error of a load that llama.cpp refused, from the lines it logged meanwhile."""
    text = "\n".join(log)
    for cause in _LOAD_CAUSES:
        if found := cause.pattern.search(text):
            groups = [group for group in found.groups() if group is not None]
            return cause.error(cause.sentence.format(*groups, file=path.name))
    last = next((line for line in reversed(log) if "error" in line.lower() or "failed" in line.lower()), "")
    detail = f" llama.cpp says: {last.split(': ', 1)[-1].strip()}" if last else ""
    return ModelFileError(f"{path.name} could not be loaded.{detail}")


@dataclass(frozen=True)
class Death:
    """Why a worker ended, and what a restart should do differently."""

    sentence: str
    without_extra_bufts: bool = False
    fewer_gpu_layers: bool = False


_WINDOWS_ENDS = {
    0xC000001D: signal.SIGILL,
    0xC0000005: signal.SIGSEGV,
    0xC0000409: signal.SIGABRT,
    0x00000003: signal.SIGABRT,
}


def explain_death(exit_status: int | None, last_words: str = "") -> Death:
    """Why the engine's process ended. `last_words` is llama.cpp's message before an abort, if there was one."""
    ended_by = None
    if exit_status is not None:
        ended_by = -exit_status if exit_status < 0 else _WINDOWS_ENDS.get(exit_status & 0xFFFFFFFF)
    if ended_by == signal.SIGILL:
        return Death(
            "The engine stopped: this processor lacks an instruction of this build. It starts again without the "
            "faster weight layouts that need it.",
            without_extra_bufts=True,
        )
    if ended_by == getattr(signal, "SIGKILL", -1) and not last_words:
        return Death(
            "The engine was ended from outside, as systems do when memory runs out. Close other programs, "
            "or choose a smaller model or a shorter context.",
            fewer_gpu_layers=True,
        )
    if ended_by == getattr(signal, "SIGBUS", -1):
        return Death("The engine stopped: the model's file changed or vanished while it was in use.")
    if re.search(r"out of memory|unable to allocate|failed to allocate|ErrorOutOf", last_words, re.IGNORECASE):
        return Death("The engine stopped: the model needs more memory than is free.", fewer_gpu_layers=True)
    if last_words:
        said = re.sub(r"\S*[/\\](?=[^/\\\s]+:\d+)", "", last_words.splitlines()[-1])  # no folders of the build
        return Death(f"The engine stopped: {said[:200]}")
    if ended_by in (signal.SIGSEGV, signal.SIGABRT):
        return Death("The engine crashed inside llama.cpp.")
    return Death("The engine stopped unexpectedly.")
