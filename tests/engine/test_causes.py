"""Log lines and exit statuses become sentences with a next step."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from app.engine.causes import explain_death, explain_load_failure
from app.errors import ModelFileError, OutOfMemoryError

FILE = Path("elsewhere/model.gguf")


@pytest.mark.parametrize(
    ("line", "kind", "named"),
    [
        ("llama_model_load: error loading model: unknown model architecture: 'clip'", ModelFileError, "projector"),
        ("error loading model architecture: unknown model architecture: 'quux9'", ModelFileError, "“quux9”"),
        ("error loading model architecture: unknown model architecture: ''", ModelFileError, "does not say"),
        ("error loading model vocabulary: unknown pre-tokenizer type: 'newone'", ModelFileError, "“newone”"),
        (
            "tensor 'blk.3.ffn_up.weight' data is not within the file bounds, model is corrupted or incomplete",
            ModelFileError,
            "damaged",
        ),
        ("gguf_init_from_file_impl: failed to read key-value pairs", ModelFileError, "damaged"),
        ("gguf_init_from_file_impl: failed to read tensor info", ModelFileError, "damaged"),
        (
            "gguf_init_from_reader: this GGUF file is version 99 but this software only supports up to version 3",
            ModelFileError,
            "version 99",
        ),
        ("ggml_backend_cpu_buffer_type_alloc_buffer: unable to allocate CPU buffer", OutOfMemoryError, "memory"),
        ("llama_init_from_model: failed to allocate buffer for kv cache", OutOfMemoryError, "memory"),
        ("done_getting_tensors: wrong number of tensors; expected 290, got 289", ModelFileError, "missing"),
        ("invalid split file: model-00002-of-00003.gguf", ModelFileError, "part"),
        ("gguf_init_from_file: failed to open GGUF file: Permission denied", ModelFileError, "permission"),
    ],
)
def test_known_lines(line: str, kind: type, named: str) -> None:
    error = explain_load_failure(FILE, ["llama_model_loader: loaded meta data", line, "failed to load model"])
    assert type(error) is kind
    assert named in str(error)
    assert "model.gguf" in str(error)
    assert "elsewhere" not in str(error)


def test_an_unknown_line_is_shown_itself() -> None:
    error = explain_load_failure(FILE, ["llama: all is well", "llama_x: error: the moon is in the wrong house"])
    assert "the moon is in the wrong house" in str(error)


def test_no_line_at_all_still_gives_a_sentence() -> None:
    assert str(explain_load_failure(FILE, [])) == "model.gguf could not be loaded."


@pytest.mark.parametrize(
    ("status", "last_words", "named"),
    [
        (-signal.SIGILL, "", "lacks an instruction"),
        (-signal.SIGKILL, "", "memory runs out"),
        (-signal.SIGBUS, "", "changed or vanished"),
        (-signal.SIGSEGV, "", "crashed"),
        (-signal.SIGABRT, "CUDA error: out of memory", "more memory than is free"),
        (-signal.SIGABRT, "GGML_ASSERT(n < 4) failed", "GGML_ASSERT(n < 4) failed"),
        (-signal.SIGABRT, "an error: /a/b c/d-e.cpp:34: GGML_ASSERT(n) failed", "d-e.cpp:34: GGML_ASSERT(n) failed"),
        (1, "", "unexpectedly"),
        (None, "", "unexpectedly"),
        (0xC000001D, "", "lacks an instruction"),
        (0xC0000005, "", "crashed"),
    ],
)
def test_ways_to_end(status: int | None, last_words: str, named: str) -> None:
    assert named in explain_death(status, last_words).sentence


def test_what_a_restart_does_differently() -> None:
    assert explain_death(-signal.SIGILL).without_extra_bufts
    assert explain_death(-signal.SIGKILL).fewer_gpu_layers
    assert not explain_death(-signal.SIGSEGV).fewer_gpu_layers
