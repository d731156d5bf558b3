"""Settings that a model's file suggests: read from a real header, and where they stand beside a choice."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from gguf import GGUFWriter

from app.engine.limits import validate
from app.engine.llama import Library
from app.engine.model import Model
from app.engine.protocol import GenerationRequest, SamplingParams
from app.engine.suggested import sampling_of, suggested_sampling
from tests.support.gguf_files import Vocabulary, small_vocabulary, write_llama
from tests.support.smol import starter_file


@dataclass(frozen=True)
class Suggesting(Vocabulary):
    def write(self, writer: GGUFWriter) -> None:
        super().write(writer)
        writer.add_float32("general.sampling.temp", 0.25)
        writer.add_int32("general.sampling.top_k", 20)
        writer.add_float32("general.sampling.top_p", 0.5)
        writer.add_float32("general.sampling.penalty_repeat", 1.125)
        writer.add_string("general.sampling.sequence", "top_k;temperature")


@dataclass(frozen=True)
class SuggestingGreed(Vocabulary):
    def write(self, writer: GGUFWriter) -> None:
        super().write(writer)
        writer.add_float32("general.sampling.temp", 0.0)


def suggesting_file(folder: Path, kind: type[Vocabulary] = Suggesting) -> Path:
    plain = small_vocabulary(starter_file())
    path = folder / "suggesting.gguf"
    write_llama(path, kind(*(getattr(plain, field.name) for field in fields(plain))))
    return path


def test_a_files_suggestions_are_read(tmp_path: Path) -> None:
    model = Model(Library(), suggesting_file(tmp_path), gpu_layers=0, vocab_only=True)
    try:
        assert model.info().suggested == {"temperature": 0.25, "top_k": 20, "top_p": 0.5, "repeat_penalty": 1.125}
    finally:
        model.close()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0.6", {"temperature": 0.6}),
        ("0.600000", {"temperature": 0.6}),
        ("-3", {"temperature": 0.0}),
        ("1e9", {"temperature": 100.0}),
        ("nan", {}),
        ("inf", {}),
        ("warm", {}),
        ("", {}),
        (None, {}),
    ],
)
def test_what_a_file_says_is_checked(text: str | None, wanted: dict[str, float]) -> None:
    assert suggested_sampling({"general.sampling.temp": text}.get) == wanted


def test_whole_numbers_are_whole() -> None:
    found = suggested_sampling({"general.sampling.top_k": "20.4", "general.sampling.mirostat": "7"}.get)
    assert found == {"top_k": 20, "mirostat": 2}
    assert isinstance(sampling_of({"top_k": 20.0}, {}).top_k, int)  # as it arrives from another process


def test_a_choice_counts_before_a_suggestion_and_that_before_our_default() -> None:
    found = sampling_of({"temperature": 0.3, "top_k": 20.0}, {"temperature": 0.0, "top_p": None})
    assert (found.temperature, found.top_k) == (0.0, 20)
    assert found.top_p == SamplingParams().top_p


def test_whatever_a_file_suggests_can_be_asked_for() -> None:
    for text in ("-1e30", "1e30", "0", "0.5"):
        suggested = suggested_sampling(lambda key, text=text: text)
        assert len(suggested) == 11
        validate(GenerationRequest((), sampling_of(suggested, {})))


def test_a_question_in_the_terminal_follows_the_file_unless_told_otherwise(tmp_path: Path) -> None:
    """A file that suggests temperature 0 gives one answer to all seeds."""
    path = suggesting_file(tmp_path, SuggestingGreed)

    def answer(*options: str) -> str:
        command = [sys.executable, "-m", "app", "ask", "--json", "--target", str(path), "--max-tokens", "8", *options]
        result = subprocess.run([*command, "Hello"], capture_output=True, text=True, timeout=120, check=False)
        assert result.returncode == 0, result.stderr
        return str(json.loads(result.stdout)["text"])

    assert answer("--seed", "1") == answer("--seed", "2")
    assert answer("--seed", "1", "--temperature", "2") != answer("--seed", "2", "--temperature", "2")
