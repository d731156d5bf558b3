"""What a file says of itself, read from its first bytes: true for whole files, harmless for damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFWriter

from app.engine.header import Header, read_header
from tests.support.models import Models
from tests.support.smol import starter_file


def written(path: Path, architecture: str, **texts: str) -> Path:
    """A file without tensors whose facts stand behind an array of texts, one of numbers, and a vocabulary."""
    writer = GGUFWriter(path, architecture)
    writer.add_array("general.tags", ["a", "chat", "model"])
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_token_list(["<a>", "b"])
    for key, value in texts.items():
        writer.add_string(key.replace("_", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_a_model_is_no_other_kind(models: Models) -> None:
    for path in (starter_file(), models.path("tiny-swa"), models.path("tiny-mamba"), models.path("tiny-lfm2")):
        header = read_header(path)
        assert header and header.has_weights and header.other_kind is None


@pytest.mark.parametrize(
    ("type_", "architecture", "named"),
    [
        ("adapter", "llama", "LoRA"),
        ("imatrix", "", "importance matrix"),
        ("mmproj", "clip", "projector"),
        ("model", "bert", "embedding"),
        ("model", "eagle3", "draft head"),
        ("model", "dream", "diffusion"),
        ("model", "sd3", "pictures"),
        ("model", "t5", "encoder-decoder"),
    ],
)
def test_what_it_is_and_what_to_choose_instead(type_: str, architecture: str, named: str) -> None:
    other = Header(type_, architecture, has_weights=True).other_kind
    assert other and named in other and "Choose" in other


def test_a_vocabulary_is_told_from_the_first_part_of_a_model(tmp_path: Path) -> None:
    alone = read_header(written(tmp_path / "vocabulary.gguf", "llama", general_type="model"))
    part = read_header(written(tmp_path / "part.gguf", "llama", general_type="model", split_count="2"))
    assert alone and alone.other_kind and "vocabulary" in alone.other_kind
    assert part and part.other_kind is None


def test_a_damaged_header_is_left_to_llama_cpp(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.gguf", "llama", general_type="adapter").read_bytes()
    path = tmp_path / "damaged.gguf"
    for end in range(len(whole) - 64):
        path.write_bytes(whole[:end])
        assert read_header(path) is None
    for at in range(24, len(whole) - 8, 3):  # a length or a count that nothing backs
        path.write_bytes(whole[:at] + b"\xff" * 8 + whole[at + 8 :])
        read_header(path)
    path.write_bytes(whole[:4] + (1).to_bytes(4, "little") + whole[8:])
    assert read_header(path) is None
