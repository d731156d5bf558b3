"""What a GGUF file says of itself in its first lines, read without its vocabulary and its weights.

The format is `docs/gguf.md` of ggml: magic, version, two counts, then key and value by turns, general facts first.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_LONGEST_TEXT = 1 << 16  # bytes; a key or a general fact that is longer is damage
_LONGEST_VALUE = 1 << 30  # bytes; templates and vocabularies stay far below
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of the other value types

_MODEL_INSTEAD = "Choose a text generation model."
_OWN_TARGET_ONLY = (
    "a draft head that works only inside its own target. Choose a small model of the target's family as a draft."
)

# What stands beside chat models and is none: general.type or general.architecture, and the rest of a sentence.
_OTHER_KINDS = {
    kind: sentence
    for kinds, sentence in (
        ("adapter", "an adapter (LoRA), which only changes another model. Choose the model it was made for."),
        ("imatrix", "an importance matrix, a tool's notes for making models. Choose a model that was made with it."),
        ("mmproj clip", "a picture projector (mmproj), not a model that can chat. Choose the model it belongs to."),
        ("eagle3 dflash gemma4-assistant", _OWN_TARGET_ONLY),
        (
            "bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert t5encoder",
            f"an embedding model, which cannot chat. {_MODEL_INSTEAD}",
        ),
        ("gemma-embedding llama-embed", f"an embedding model, which cannot chat. {_MODEL_INSTEAD}"),
        ("t5", f"an encoder-decoder model, which cannot chat. {_MODEL_INSTEAD}"),
        ("dream llada llada-moe rnd1", f"a diffusion model, which cannot chat. {_MODEL_INSTEAD}"),
        (
            "flux sd1 sdxl sd3 aura hidream cosmos ltxv hyvid wan lumina2 qwen_image",
            f"a model that makes pictures or videos. {_MODEL_INSTEAD}",
        ),
        ("wavtokenizer-dec pockettts qwen3tts", f"a model that speaks, which cannot chat. {_MODEL_INSTEAD}"),
    )
    for kind in kinds.split()
}
_VOCABULARY_ONLY = "a vocabulary without a model's weights. Choose the model itself."


@dataclass(frozen=True)
class Header:
    """The first facts of a GGUF file. A fact that it does not state is ""."""

    type: str
    architecture: str
    has_weights: bool  # in this file or in the other parts of its model

    @property
    def other_kind(self) -> str | None:
        """What the file is and what to choose instead, as the rest of a sentence; None for what may be a chat model."""
        other = _OTHER_KINDS.get(self.type) or _OTHER_KINDS.get(self.architecture)
        return other or (None if self.has_weights else _VOCABULARY_ONLY)


def read_header(path: Path) -> Header | None:
    """The header of a GGUF file, or None where it is damaged or of a kind we do not know: llama.cpp names that better.

    Raises OSError.
    """
    with path.open("rb") as file:
        try:
            return _read(file)
        except (struct.error, ValueError, KeyError):
            return None


def _read(file: BinaryIO) -> Header | None:
    magic, version, tensors, values = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF" or version not in (2, 3):
        return None
    facts: dict[str, str] = {}
    is_part = False
    for _ in range(values):
        key = _text(file)
        # The vocabulary is long, and only the note that a file is one part of several may stand behind it.
        if key.startswith("tokenizer.") and tensors:
            break
        is_part |= key == "split.count"
        (kind,) = struct.unpack("<I", file.read(4))
        if kind == _STRING and key in ("general.type", "general.architecture"):
            facts[key] = _text(file)
        else:
            _skip(file, kind)
    return Header(facts.get("general.type", ""), facts.get("general.architecture", ""), tensors > 0 or is_part)


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST_TEXT:
        raise ValueError("a text too long to be one")
    return file.read(length).decode()


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        (length,) = struct.unpack("<Q", file.read(8))
        _pass_over(file, length)
    elif kind == _ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        if inner == _STRING:
            for _ in range(count):
                _skip(file, _STRING)
        else:
            _pass_over(file, _SIZES[inner] * count)
    else:
        _pass_over(file, _SIZES[kind])


def _pass_over(file: BinaryIO, size: int) -> None:
    if size > _LONGEST_VALUE:
        raise ValueError("a value too long to be one")
    file.seek(size, os.SEEK_CUR)
