"""A GGUF file, open: weights or only the vocabulary, and what its header says."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from app.engine.causes import explain_load_failure
from app.engine.header import read_header
from app.engine.llama import CancelFlag, L, Library
from app.engine.protocol import ModelInfo
from app.engine.suggested import suggested_sampling
from app.engine.vocabulary import Vocabulary
from app.errors import CancelledError, ModelFileError


class Model:
    """A GGUF file, open. `vocab_only` reads no weights and gives no context.

    Raises ModelFileError, OutOfMemoryError or CancelledError with a sentence.
    """

    def __init__(
        self,
        library: Library,
        path: Path,
        *,
        gpu_layers: int | None = None,
        use_extra_bufts: bool = True,
        vocab_only: bool = False,
        cancel: CancelFlag | None = None,
        on_progress: Callable[[float], None] = lambda fraction: None,
    ) -> None:
        self.path = path
        self.handle: int | None = None
        self.vocab_only = vocab_only
        self.library = library
        _refuse_what_is_no_model(path)

        params = L.llama_model_default_params()
        params.n_gpu_layers = -1 if gpu_layers is None else gpu_layers
        params.use_extra_bufts = use_extra_bufts
        params.vocab_only = vocab_only
        if gpu_layers == 0:
            # No layers alone would still create the GPU back ends; an empty list of devices does not.
            nothing = (ctypes.c_void_p * 1)(None)
            params.devices = ctypes.cast(nothing, ctypes.c_void_p)

        def keep_going(fraction: float, _data: int) -> bool:
            with contextlib.suppress(Exception):
                on_progress(fraction)
            return not (cancel and cancel.is_set())

        callback = L.llama_progress_callback(keep_going)
        params.progress_callback = callback
        library.log.clear()
        self.handle = L.llama_model_load_from_file(os.fsencode(path), params)
        if self.handle is None:
            if cancel and cancel.is_set():
                raise CancelledError("Loading was stopped.")
            raise explain_load_failure(path, list(library.log))
        has_gpu = any(device.type != "cpu" for device in library.devices())
        self.gpu_layers = _offloaded_layers(library.log) if has_gpu else 0  # the log claims layers even without one
        self.vocabulary = Vocabulary(self.handle)
        self._refuse_what_cannot_chat()

    def _refuse_what_cannot_chat(self) -> None:
        """What the header's names did not tell, llama.cpp knows."""
        kind = None
        if L.llama_model_is_diffusion(self.handle):
            kind = "a diffusion model"
        elif L.llama_model_has_encoder(self.handle) or not L.llama_model_has_decoder(self.handle):
            kind = "an encoder or embedding model"
        elif self.metadata(f"{self.architecture}.attention.causal") == "false":
            kind = "an embedding model"
        if kind:
            self.close()
            raise ModelFileError(f"{self.path.name} is {kind}, which cannot chat. Choose a text generation model.")

    @property
    def architecture(self) -> str:
        return self.metadata("general.architecture") or ""

    @property
    def has_windows(self) -> bool:
        """Whether some layers see only the latest tokens (sliding window attention)."""
        return bool(L.llama_model_n_swa(self.handle) > 0)

    @property
    def chat_template(self) -> str | None:
        return self.metadata("tokenizer.chat_template")

    def metadata(self, key: str) -> str | None:
        """A scalar or text value of the GGUF header; arrays are not reachable."""
        size = L.llama_model_meta_val_str(self.handle, key.encode(), None, 0)
        if size < 0:
            return None
        buffer = ctypes.create_string_buffer(size + 1)
        L.llama_model_meta_val_str(self.handle, key.encode(), buffer, size + 1)
        return buffer.value.decode(errors="replace")

    def info(self, context: int = 0) -> ModelInfo:
        """Facts for people; `context` is that of the context made for it."""
        buffer = ctypes.create_string_buffer(256)
        L.llama_model_desc(self.handle, buffer, len(buffer))
        # Without weights llama.cpp counts neither layers nor parameters; the header has them all the same.
        described = buffer.value.decode(errors="replace").strip()
        layers = L.llama_model_n_layer(self.handle) or self._header_number("block_count")
        return ModelInfo(
            file=str(self.path),
            description=described or f"{self.architecture} {self.metadata('general.size_label') or ''}".strip(),
            layers=layers,
            gpu_layers=min(self.gpu_layers, layers),
            context=context,
            trained_context=L.llama_model_n_ctx_train(self.handle) or self._header_number("context_length"),
            n_vocab=self.vocabulary.n_tokens,
            size=L.llama_model_size(self.handle) or self.path.stat().st_size,
            suggested=suggested_sampling(self.metadata),
        )

    def _header_number(self, key: str) -> int:
        text = self.metadata(f"{self.architecture}.{key}") or ""
        return int(text) if text.isdecimal() else 0

    def close(self) -> None:
        """Free the weights. Close its contexts first."""
        if self.handle is not None:
            L.llama_model_free(self.handle)
            self.handle = None


def _refuse_what_is_no_model(path: Path) -> None:
    """Name a file that is something else from its first bytes, before gigabytes are read."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        header = read_header(path)
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a folder. Choose a .gguf file in it.") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.") from error
    if magic != b"GGUF":
        raise ModelFileError(f"{path.name} is not a GGUF file. Choose a model in GGUF format.")
    if header and header.other_kind:
        raise ModelFileError(f"{path.name} is {header.other_kind}")


def _offloaded_layers(log: Sequence[str]) -> int:
    """From llama.cpp's own line "offloaded 31/31 layers to GPU"; it tells nowhere else."""
    for line in log:
        _, found, rest = line.partition("offloaded ")
        if found and "layers to GPU" in rest:
            return int(rest.split("/")[0])
    return 0
