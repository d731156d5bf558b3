"""llama.cpp, as much of it as Slipstream needs: Library, Model, Vocabulary and Context over the raw ctypes module.

The only file that imports `llama_cpp`. Everything that would make llama.cpp end the process (a batch too large, an
index out of range, a second thread on one context) is refused here, in Python, before the call.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import llama_cpp.llama_cpp as L
import numpy as np
import numpy.typing as npt

from app.engine.causes import explain_load_failure
from app.engine.protocol import MAX_DRAFT_LENGTH, Device, ModelInfo
from app.errors import CancelledError, ContextFullError, ModelFileError, OutOfMemoryError, SlipstreamError

Logits = npt.NDArray[np.float32]

BATCH = 512  # tokens of a prompt evaluated at once
_ROWS = MAX_DRAFT_LENGTH + 1  # of logits that a context reserves; more would abort
_ATTR_UNKNOWN, _ATTR_CONTROL, _ATTR_USER_DEFINED = 1, 8, 16
_DEVICE_TYPES: tuple[Literal["cpu", "gpu", "igpu", "accelerator"], ...] = ("cpu", "gpu", "igpu", "accelerator")

# The binding types these as POINTER, whose conversion to numpy costs ten times the address alone.
_logits_address = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(("llama_get_logits_ith", L._lib))


class CancelFlag:
    """Set from any thread; llama.cpp sees it between two graph nodes on the CPU, and we see it between two decodes.

    The flag is a C string: empty is False. llama.cpp asks it through `strlen`, which needs no Python and no lock.
    """

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)
        self._libc = ctypes.CDLL("msvcrt" if os.name == "nt" else None)
        self.callback = L.ggml_abort_callback(ctypes.cast(self._libc.strlen, ctypes.c_void_p).value or 0)

    def set(self) -> None:
        self._text[0] = b"\x01"

    def clear(self) -> None:
        self._text[0] = b"\x00"

    def is_set(self) -> bool:
        return self._text[0] != b"\x00"

    @property
    def address(self) -> int:
        return ctypes.addressof(self._text)


class Library:
    """llama.cpp itself: started once per process. Keeps the newest log lines, from which causes are read."""

    def __init__(self, on_abort: Callable[[str], None] = lambda text: None) -> None:
        os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # otherwise an abort forks a debugger
        self.log: deque[str] = deque(maxlen=400)
        self._on_log = L.llama_log_callback(self._keep_log)
        L.llama_log_set(self._on_log, ctypes.c_void_p(0))
        self._on_abort = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(
            lambda text: on_abort((text or b"").decode(errors="replace").strip())
        )
        _ggml("ggml_set_abort_callback", ctypes.c_void_p, [ctypes.c_void_p])(
            ctypes.cast(self._on_abort, ctypes.c_void_p)
        )
        L.llama_backend_init()

    def _keep_log(self, level: int, text: bytes, _data: int) -> None:
        with contextlib.suppress(Exception):  # an exception must not cross into C
            line = text.decode(errors="replace")
            if level == 5 and self.log:  # the rest of the line before
                self.log[-1] += line.rstrip("\n")
            elif line.strip():
                self.log.append(line.rstrip("\n"))

    @property
    def version(self) -> str:
        version = L.llama_version()
        return version.decode() if isinstance(version, bytes) else str(version)

    @property
    def system_info(self) -> str:
        return str(L.llama_print_system_info().decode(errors="replace")).strip()

    @property
    def supports_gpu_offload(self) -> bool:
        return bool(L.llama_supports_gpu_offload())

    @property
    def supports_rpc(self) -> bool:
        return bool(L.llama_supports_rpc())

    def devices(self) -> tuple[Device, ...]:
        """Every device of every back end, memory in bytes as the back end tells it."""
        get = _ggml("ggml_backend_dev_get", ctypes.c_void_p, [ctypes.c_size_t])
        name = _ggml("ggml_backend_dev_name", ctypes.c_char_p, [ctypes.c_void_p])
        description = _ggml("ggml_backend_dev_description", ctypes.c_char_p, [ctypes.c_void_p])
        kind = _ggml("ggml_backend_dev_type", ctypes.c_int, [ctypes.c_void_p])
        size_p = ctypes.POINTER(ctypes.c_size_t)
        memory = _ggml("ggml_backend_dev_memory", None, [ctypes.c_void_p, size_p, size_p])
        found = []
        for i in range(_ggml("ggml_backend_dev_count", ctypes.c_size_t, [])()):
            handle, free, total = get(i), ctypes.c_size_t(), ctypes.c_size_t()
            memory(handle, ctypes.byref(free), ctypes.byref(total))
            found.append(
                Device(
                    name=name(handle).decode(errors="replace"),
                    description=description(handle).decode(errors="replace").strip(),
                    type=_DEVICE_TYPES[min(kind(handle), 3)],
                    memory_free=free.value,
                    memory_total=total.value,
                )
            )
        return tuple(found)


def _ggml(name: str, restype: Any, argtypes: list[Any]) -> Any:
    """A function of ggml that the binding does not declare, from the library it has already opened."""
    handles = [L._lib]
    if os.name == "nt":  # GetProcAddress does not look into dependencies
        folder = Path(L._lib._name).parent
        handles += [ctypes.CDLL(str(folder / dll)) for dll in ("ggml.dll", "ggml-base.dll")]
    for handle in handles:
        if hasattr(handle, name):
            return ctypes.CFUNCTYPE(restype, *argtypes)((name, handle))
    raise SlipstreamError(f"This build of llama.cpp lacks {name}. Install llama-cpp-python again.")


class Vocabulary:
    """The tokens of a model. Valid while its model is open; ids are checked, since llama.cpp would end the process."""

    def __init__(self, model: Model) -> None:
        self._model = model  # keeps the handle's owner alive
        self._handle = L.llama_model_get_vocab(model.handle)
        self.n_tokens: int = L.llama_vocab_n_tokens(self._handle)
        self.type: int = L.llama_vocab_type(self._handle)
        self.bos = self._special(L.llama_vocab_bos)
        self.eos = self._special(L.llama_vocab_eos)
        self.add_bos = bool(L.llama_vocab_get_add_bos(self._handle))
        self.add_eos = bool(L.llama_vocab_get_add_eos(self._handle))
        self._buffer = ctypes.create_string_buffer(256)

    def _special(self, get: Callable[[int], int]) -> int | None:
        token = get(self._handle)
        return token if 0 <= token < self.n_tokens else None

    @cached_property
    def texts(self) -> list[bytes]:
        """The raw text of every token, by id."""
        get, handle = L.llama_vocab_get_text, self._handle
        return [get(handle, token) for token in range(self.n_tokens)]

    @cached_property
    def _attributes(self) -> list[int]:
        get, handle = L.llama_vocab_get_attr, self._handle
        return [get(handle, token) for token in range(self.n_tokens)]

    @cached_property
    def special_texts(self) -> Mapping[str, int]:
        """Texts that llama.cpp may read as one token of control: id by text."""
        wanted = _ATTR_UNKNOWN | _ATTR_CONTROL | _ATTR_USER_DEFINED
        return {self.text_of(t): t for t, attribute in enumerate(self._attributes) if attribute & wanted}

    @cached_property
    def user_defined_texts(self) -> frozenset[str]:
        """Those that are matched even where special tokens are switched off."""
        return frozenset(self.text_of(t) for t, a in enumerate(self._attributes) if a & _ATTR_USER_DEFINED)

    @cached_property
    def suppressed(self) -> npt.NDArray[np.int64]:
        """Ids the model's file wants never sampled."""
        count = ctypes.c_int32(0)
        ids = L.llama_vocab_get_suppress_tokens(self._handle, ctypes.byref(count))
        return np.array([ids[i] for i in range(count.value)] if ids else [], dtype=np.int64)

    def text_of(self, token: int) -> str:
        return str(L.llama_vocab_get_text(self._handle, self._checked(token)).decode(errors="replace"))

    def is_end(self, token: int) -> bool:
        """Whether the token ends a turn, by the whole set llama.cpp knows, not by one id."""
        return bool(L.llama_vocab_is_eog(self._handle, token))

    @cached_property
    def ends(self) -> frozenset[int]:
        """All tokens that end a turn."""
        return frozenset(token for token in range(self.n_tokens) if self.is_end(token))

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token adds to the text; b"" for control tokens unless `special`."""
        self._checked(token)
        n = L.llama_token_to_piece(self._handle, token, self._buffer, len(self._buffer), 0, special)
        if n < 0:
            self._buffer = ctypes.create_string_buffer(-n)
            n = L.llama_token_to_piece(self._handle, token, self._buffer, -n, 0, special)
        return self._buffer.raw[:n]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode("utf-8", "replace")
        size = len(data) + 8
        while True:
            ids = (ctypes.c_int32 * size)()
            n = L.llama_tokenize(self._handle, data, len(data), ids, size, add_special, parse_special)
            if n >= 0:
                return list(ids[:n])
            size = -n

    def _checked(self, token: int) -> int:
        if not 0 <= token < self.n_tokens:
            raise IndexError(f"token {token} of a vocabulary of {self.n_tokens}")
        return token


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
        self._library = library
        _refuse_what_is_no_gguf(path)

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
        self.vocabulary = Vocabulary(self)
        if not vocab_only:
            self._refuse_what_cannot_chat()

    def _refuse_what_cannot_chat(self) -> None:
        kind = None
        if L.llama_model_is_diffusion(self.handle):
            kind = "a diffusion model"
        elif L.llama_model_has_encoder(self.handle) or not L.llama_model_has_decoder(self.handle):
            kind = "an encoder or embedding model"
        if kind:
            self.close()
            raise ModelFileError(f"{self.path.name} is {kind}, which cannot chat. Choose a text generation model.")

    @property
    def architecture(self) -> str:
        return self.metadata("general.architecture") or ""

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
        )

    def _header_number(self, key: str) -> int:
        text = self.metadata(f"{self.architecture}.{key}") or ""
        return int(text) if text.isdecimal() else 0

    def close(self) -> None:
        """Free the weights. Close its contexts first."""
        if self.handle is not None:
            L.llama_model_free(self.handle)
            self.handle = None


class Context:
    """A model's memory (its cache) and the one thread of computation on it.

    `tokens` is what the memory holds, in order: position i of the cache belongs to tokens[i].
    """

    def __init__(self, model: Model, *, size: int, threads: int, cancel: CancelFlag) -> None:
        if model.vocab_only:
            raise ValueError("a model without weights has no context")
        params = L.llama_context_default_params()
        params.n_ctx = size
        params.n_batch = params.n_ubatch = min(BATCH, size)
        params.n_seq_max = 1
        params.n_outputs_max = _ROWS  # by default the buffer has a row for every token of a batch
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = 1  # without it a batch of one and a batch of many differ (DESIGN, section 3)
        params.abort_callback = cancel.callback
        params.abort_callback_data = cancel.address
        self._cancel = cancel  # keeps the callback alive as long as the context
        self.model = model
        model._library.log.clear()
        self.handle: int | None = L.llama_init_from_model(model.handle, params)
        if self.handle is None:
            error = explain_load_failure(model.path, list(model._library.log))
            raise (
                error
                if isinstance(error, OutOfMemoryError)
                else ModelFileError(
                    f"No context of {size} tokens could be made for {model.path.name}. Try a shorter context. ({error})"
                )
            )
        self._batch = _Batch(min(BATCH, size), size)
        self._memory = L.llama_get_memory(self.handle)
        if not self._memory:
            self.close()
            raise ModelFileError(
                f"{model.path.name} has no memory for a conversation, so it cannot chat: it may embed text. "
                "Choose a text generation model."
            )
        self.size: int = min(size, L.llama_n_ctx_seq(self.handle))
        self.tokens: list[int] = []
        self.busy_s = 0.0  # seconds of decoding so far
        self.vocabulary_size = model.vocabulary.n_tokens
        self._rows = ctypes.c_float * model.vocabulary.n_tokens
        self._first_row = 0
        self._n_rows = 0
        self.can_rewind = self._probe_rewind()

    @property
    def capacity(self) -> int:
        """How many tokens one batch takes."""
        return self._batch.capacity

    def decode(self, tokens: Sequence[int], outputs: int) -> None:
        """Evaluate `tokens` behind those held and keep logits for the last `outputs` of them.

        Raises ContextFullError (memory unchanged), CancelledError, or SlipstreamError when the computation failed.
        """
        n = len(tokens)
        if not 0 < n <= self.capacity or not 0 <= outputs <= min(n, _ROWS):
            raise ValueError(f"a batch of {n} tokens with {outputs} rows of logits")
        if len(self.tokens) + n > self.size:
            raise ContextFullError(f"The context of {self.size} tokens is full.")
        self._n_rows = 0
        batch = self._batch.fill(tokens, len(self.tokens), outputs)
        started = time.perf_counter()
        code = L.llama_decode(self.handle, batch)
        if outputs:
            L.llama_synchronize(self.handle)  # a GPU has only been told so far
        self.busy_s += time.perf_counter() - started
        if code == 0:
            self.tokens.extend(tokens)
            self._first_row, self._n_rows = n - outputs, outputs
            return
        del self.tokens[L.llama_memory_seq_pos_max(self._memory, 0) + 1 :]
        if code == 1:
            raise ContextFullError(f"The context of {self.size} tokens is full.")
        if code == 2 or self._cancel.is_set():
            if not self.can_rewind:
                self.clear()  # what an aborted batch leaves in a recurrent memory is undefined
            raise CancelledError("Stopped.")
        raise SlipstreamError(
            f"{self.model.path.name} could not be computed (llama.cpp returned {code}). "
            "Load it again, with a shorter context if memory is short."
        )

    def logits(self, row: int) -> Logits:
        """Logits of row `row` of the last decode, shape (n_vocab,). A view that the next decode overwrites."""
        if not 0 <= row < self._n_rows:
            raise IndexError(f"row {row} of {self._n_rows}")
        address = _logits_address(self.handle, self._first_row + row)
        view: Logits = np.frombuffer(self._rows.from_address(address), dtype=np.float32)  # type: ignore[call-overload]
        return view

    def rewind(self, length: int) -> None:
        """Drop what the memory holds after the first `length` tokens.

        A memory that refuses (recurrent models) is cleared instead; the caller evaluates again what `tokens` lacks.
        """
        if length >= len(self.tokens):
            return
        if length > 0 and L.llama_memory_seq_rm(self._memory, 0, length, -1):
            del self.tokens[length:]
        else:
            self.clear()

    def clear(self) -> None:
        L.llama_memory_clear(self._memory, True)
        self.tokens = []

    def _probe_rewind(self) -> bool:
        """Two tokens in, one out, as llama.cpp's own tools find out."""
        if self.size < 2:
            return False
        cancelled, self.can_rewind = self._cancel.is_set(), False
        self._cancel.clear()
        self.decode([0, 0], outputs=0)
        if cancelled:
            self._cancel.set()
        works = bool(L.llama_memory_seq_rm(self._memory, 0, 1, -1))
        self.clear()
        return works

    def close(self) -> None:
        if self.handle is not None:
            L.llama_free(self.handle)
            self.handle = None
            self._batch.close()


class _Batch:
    """A llama_batch of one sequence, filled by slices, for positions below `size`."""

    def __init__(self, capacity: int, size: int) -> None:
        self.capacity = capacity
        self._batch = L.llama_batch_init(capacity, 0, 1)

        def view(pointer: Any, kind: Any) -> npt.NDArray[Any]:
            return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(kind)), (capacity,))

        self._tokens = view(self._batch.token, ctypes.c_int32)
        self._positions = view(self._batch.pos, ctypes.c_int32)
        self._wants_logits = view(self._batch.logits, ctypes.c_int8)
        view(self._batch.n_seq_id, ctypes.c_int32)[:] = 1
        for i in range(capacity):
            self._batch.seq_id[i][0] = 0
        self._counting = np.arange(size + capacity, dtype=np.int32)
        self._shape = (0, 0)  # of the last batch

    def fill(self, tokens: Sequence[int], position: int, outputs: int) -> Any:
        n = len(tokens)
        if n <= _ROWS:  # a round: a few plain stores touch less than numpy's conversion does
            for i, token in enumerate(tokens):
                self._batch.token[i] = token
                self._batch.pos[i] = position + i
        else:
            self._tokens[:n] = tokens
            self._positions[:n] = self._counting[position : position + n]
        if (n, outputs) != self._shape:  # most rounds are alike
            self._wants_logits[: n - outputs] = 0
            self._wants_logits[n - outputs : n] = 1
            self._batch.n_tokens = n
            self._shape = (n, outputs)
        return self._batch

    def close(self) -> None:
        L.llama_batch_free(self._batch)


def _refuse_what_is_no_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a folder. Choose a .gguf file in it.") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.") from error
    if magic != b"GGUF":
        raise ModelFileError(f"{path.name} is not a GGUF file. Choose a model in GGUF format.")


def _offloaded_layers(log: Sequence[str]) -> int:
    """From llama.cpp's own line "offloaded 31/31 layers to GPU"; it tells nowhere else."""
    for line in log:
        _, found, rest = line.partition("offloaded ")
        if found and "layers to GPU" in rest:
            return int(rest.split("/")[0])
    return 0
