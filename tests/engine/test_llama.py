"""llama.cpp behind its wrapper: what would end the process is refused, and what fails is said in words."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.engine.context import Context
from app.engine.llama import CancelFlag, L, Library
from app.engine.model import Model
from app.engine.protocol import MAX_DRAFT_LENGTH
from app.errors import CancelledError, ContextFullError, ModelFileError
from tests.support.models import Models


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


@pytest.fixture(scope="module")
def model(library: Library, models: Models) -> Iterator[Model]:
    with contextlib.closing(Model(library, models.path("smol-q4"))) as opened:
        yield opened


@pytest.fixture
def cancel() -> CancelFlag:
    return CancelFlag()


@pytest.fixture
def context(model: Model, cancel: CancelFlag) -> Iterator[Context]:
    with contextlib.closing(Context(model, size=512, threads=1, cancel=cancel)) as opened:
        yield opened


def prompt(model: Model, text: str = "The keeper of the lighthouse counted the steps") -> list[int]:
    return model.vocabulary.tokenize(text, add_special=True, parse_special=True)


def test_a_verify_batch_gives_the_logits_of_single_steps(context: Context, model: Model) -> None:
    """Token-identical answers rest on this: with flash attention one batch and many agree bit by bit."""
    tokens = prompt(model)
    context.decode(tokens[:-4], outputs=0)
    single = []
    for token in tokens[-4:]:
        context.decode([token], outputs=1)
        single.append(context.logits(0).copy())
    context.rewind(len(tokens) - 4)
    context.decode(tokens[-4:], outputs=4)
    for row, want in enumerate(single):
        assert np.array_equal(context.logits(row), want)


def test_rewinding_and_going_on_is_like_never_having_been_there(context: Context, model: Model) -> None:
    tokens = prompt(model)
    context.decode(tokens, outputs=1)
    want = context.logits(0).copy()
    context.decode([100, 200, 300], outputs=1)
    context.rewind(len(tokens) - 1)
    assert context.tokens == tokens[:-1]
    context.decode(tokens[-1:], outputs=1)
    assert np.array_equal(context.logits(0), want)


@pytest.mark.parametrize(
    ("tokens", "outputs"),
    [([], 0), ([1] * 513, 0), ([1], 2), ([1] * 30, MAX_DRAFT_LENGTH + 2), ([1], -1)],
    ids=["empty", "larger than a batch", "more rows than tokens", "more rows than reserved", "negative"],
)
def test_a_batch_that_would_abort_is_refused(context: Context, tokens: list[int], outputs: int) -> None:
    with pytest.raises(ValueError, match="a batch of"):
        context.decode(tokens, outputs)


def test_as_many_rows_as_a_draft_may_need(context: Context) -> None:
    context.decode([5] * (MAX_DRAFT_LENGTH + 1), outputs=MAX_DRAFT_LENGTH + 1)
    assert context.logits(MAX_DRAFT_LENGTH).shape == (49_152,)


@pytest.mark.parametrize("row", [-1, 1, 99])
def test_a_row_that_was_not_computed_is_refused(context: Context, row: int) -> None:
    context.decode([5, 6], outputs=1)
    with pytest.raises(IndexError):
        context.logits(row)


def test_a_full_context_says_so_and_keeps_what_it_holds(context: Context) -> None:
    context.decode([5] * 510, outputs=0)
    with pytest.raises(ContextFullError, match="512"):
        context.decode([5] * 3, outputs=1)
    assert len(context.tokens) == 510
    context.decode([5, 5], outputs=1)


def test_a_token_out_of_range_fails_without_harm(context: Context, model: Model) -> None:
    context.decode(prompt(model), outputs=0)
    held = list(context.tokens)
    with pytest.raises(Exception, match="could not be computed"):
        context.decode([model.vocabulary.n_tokens], outputs=1)
    assert context.tokens == held
    context.decode([5], outputs=1)


def test_cancelling_ends_a_decode_and_the_memory_goes_on(context: Context, cancel: CancelFlag, model: Model) -> None:
    tokens = prompt(model)
    context.decode(tokens[:3], outputs=0)
    cancel.set()
    with pytest.raises(CancelledError):
        context.decode(tokens[3:], outputs=1)
    assert context.tokens == tokens[:3]
    cancel.clear()
    context.decode(tokens[3:], outputs=1)


@pytest.mark.parametrize("token", [-1, 49_152, 10**6])
def test_token_ids_out_of_range_are_refused(model: Model, token: int) -> None:
    with pytest.raises(IndexError):
        model.vocabulary.piece(token)
    with pytest.raises(IndexError):
        model.vocabulary.text_of(token)


def test_pieces_join_to_the_text_however_long_they_are(model: Model) -> None:
    v = model.vocabulary
    text = "Grüße 🔥👩‍👩‍👧 中文\n\tx" + " " * 40 + "=" * 64
    ids = v.tokenize(text, add_special=False, parse_special=False)
    assert b"".join(v.piece(t) for t in ids).decode() == text
    longest = max(range(v.n_tokens), key=lambda t: len(v.texts[t]))
    assert len(v.piece(longest)) > 32


def test_control_tokens_have_no_text_unless_asked_for(model: Model) -> None:
    end = model.vocabulary.special_texts["<|im_end|>"]
    assert model.vocabulary.piece(end) == b""
    assert model.vocabulary.piece(end, special=True) == b"<|im_end|>"
    assert end in model.vocabulary.ends


def test_loading_can_be_cancelled(library: Library, models: Models, cancel: CancelFlag) -> None:
    seen = []

    def progress(fraction: float) -> None:
        seen.append(fraction)
        cancel.set()

    with pytest.raises(CancelledError):
        Model(library, models.path("smol-q4"), cancel=cancel, on_progress=progress)
    assert seen


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("broken-truncated", "damaged"),
        ("broken-header", "damaged"),
        ("broken-text", "not a GGUF file"),
        ("broken-mmproj", "projector"),
        ("broken-adapter", "LoRA"),
        ("broken-imatrix", "importance matrix"),
        ("broken-vocabulary", "vocabulary without"),
        ("broken-eagle3", "draft head"),
        ("broken-dflash", "draft head"),
        ("broken-version", "version 99"),
        ("empty", "not a GGUF file"),
    ],
)
def test_a_file_that_is_no_model_is_named_for_what_it_is(
    library: Library, models: Models, name: str, named: str
) -> None:
    path = models.path(name)
    with pytest.raises(ModelFileError, match=named) as caught:
        Model(library, path)
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["broken-mmproj", "broken-adapter", "broken-imatrix", "broken-vocabulary", "broken-eagle3", "embedding-model"],
)
def test_what_is_no_model_is_refused_before_its_weights_are_read(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(L, "llama_model_load_from_file", lambda *arguments: pytest.fail("it was read"))
    with pytest.raises(ModelFileError, match=r"Choose (a|the) "):
        Model(library, models.path(name))


def test_missing_files_and_folders_are_named(library: Library, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no file"):
        Model(library, tmp_path / "nothing.gguf")
    with pytest.raises(ModelFileError, match="is a folder"):
        Model(library, tmp_path)


def test_a_path_with_any_letters_opens(library: Library, models: Models, tmp_path: Path) -> None:
    path = tmp_path / "Größe 中 🔥.gguf"
    path.symlink_to(models.path("tiny-small"))
    with contextlib.closing(Model(library, path)) as opened:
        assert opened.vocabulary.n_tokens == 512


@pytest.mark.parametrize("vocab_only", [False, True])
def test_an_embedding_model_is_refused_in_words(library: Library, models: Models, vocab_only: bool) -> None:
    with pytest.raises(ModelFileError, match="cannot chat"):
        Model(library, models.path("embedding-model"), vocab_only=vocab_only)


def test_a_sliding_window_can_be_rewound(library: Library, models: Models, cancel: CancelFlag) -> None:
    with (
        contextlib.closing(Model(library, models.path("tiny-swa"))) as opened,
        contextlib.closing(Context(opened, size=256, threads=1, cancel=cancel)) as held,
    ):
        assert held.can_rewind
        tokens = [10 + i % 90 for i in range(200)]
        held.decode(tokens[:99], outputs=0)
        held.decode(tokens[99:100], outputs=1)
        want = held.logits(0).copy()
        held.decode(tokens[100:], outputs=0)
        held.rewind(99)
        held.decode(tokens[99:100], outputs=1)
        assert np.array_equal(held.logits(0), want)


def test_a_header_alone_tells_the_facts(library: Library, models: Models) -> None:
    path = models.path("smol-q4")
    with contextlib.closing(Model(library, path, vocab_only=True)) as peeked:
        info = peeked.info()
    assert (info.layers, info.trained_context, info.n_vocab) == (30, 8192, 49_152)
    assert info.size > 80_000_000
    with (
        contextlib.closing(Model(library, path, vocab_only=True)) as peeked,
        pytest.raises(ValueError, match="no context"),
    ):
        Context(peeked, size=64, threads=1, cancel=CancelFlag())


def test_a_forgotten_library_can_still_be_called_back(models: Models) -> None:
    """llama.cpp keeps the address of its log callback; what stands there must not go away."""
    script = (
        "import gc, sys; from pathlib import Path; from app.engine.llama import Library, L\n"
        "Library(); gc.collect(); junk = [bytearray(100) for _ in range(10_000)]\n"
        "sys.exit(L.llama_model_load_from_file(sys.argv[1].encode(), L.llama_model_default_params()) is None)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(models.path("tiny-small"))], timeout=60, check=False)
    assert ended.returncode == 0


def test_devices_are_listed(library: Library) -> None:
    devices = library.devices()
    assert any(device.type == "cpu" and device.memory_total > 0 for device in devices)
