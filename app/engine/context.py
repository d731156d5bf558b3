"""A model's memory (its cache) and the computation on it.

Everything that would make llama.cpp end the process (a batch too large, a row that was not computed, a second thread
on one context) is refused here, in Python, before the call.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from app.engine.causes import explain_load_failure
from app.engine.llama import CancelFlag, L, logits_address
from app.engine.model import Model
from app.engine.protocol import MAX_DRAFT_LENGTH
from app.engine.rewinding import NoRewinding, Rewinding, probe
from app.errors import CancelledError, ContextFullError, ModelFileError, OutOfMemoryError, SlipstreamError

Logits = npt.NDArray[np.float32]

BATCH = 512  # tokens of a prompt evaluated at once
_ROWS = MAX_DRAFT_LENGTH + 1  # of logits that a context reserves; more would abort
_UNCHANGED = (1, -1)  # codes of llama_decode after which the memory is what it was: no room, or a batch refused


class Context:
    """A model's memory (its cache) and the one thread of computation on it.

    `tokens` is what the memory holds, in order: position i of the cache belongs to tokens[i].

    `whole_windows` keeps what sliding windows no longer see. Then a cell lies where its token stands, whatever was
    rewound before, so that logits are the same to the last bit with a draft and without, and an edit far back finds
    everything. It costs as much memory a layer as full attention does; without it, going back further than the
    window holds means evaluating again. `snapshots` see `app.engine.rewinding.Snapshots`: of use only where what is
    dropped was evaluated in one batch, as a target's drafts are.
    """

    def __init__(
        self,
        model: Model,
        *,
        size: int,
        threads: int,
        cancel: CancelFlag,
        whole_windows: bool = True,
        snapshots: int = 0,
    ) -> None:
        if model.vocab_only:
            raise ValueError("a model without weights has no context")
        params = L.llama_context_default_params()
        params.n_ctx = size
        params.n_batch = params.n_ubatch = min(BATCH, size)
        params.n_seq_max = 1
        params.n_rs_seq = snapshots  # granted only to kinds that can
        params.swa_full = whole_windows
        params.n_outputs_max = _ROWS  # by default the buffer has a row for every token of a batch
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = 1  # without it a batch of one and a batch of many differ (DESIGN, section 3)
        params.abort_callback = cancel.callback
        params.abort_callback_data = cancel.address
        self._cancel = cancel  # keeps the callback alive as long as the context
        self.model = model
        model.library.log.clear()
        self.handle: int | None = L.llama_init_from_model(model.handle, params)
        if self.handle is None:
            error = explain_load_failure(model.path, list(model.library.log))
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
        self._logits: list[Logits] = []  # the rows of the last decode
        self._views: dict[tuple[int, int], list[Logits]] = {}
        self._rewinding: Rewinding = NoRewinding()
        window = 0 if whole_windows else L.llama_model_n_swa(model.handle)
        self._rewinding = self._probe_rewinding(window)

    @property
    def can_rewind(self) -> bool:
        """Whether dropping a few tokens is cheaper than evaluating everything again."""
        return self._rewinding.can_rewind

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
        self._logits = []
        batch = self._batch.fill(tokens, len(self.tokens), outputs)
        started = time.perf_counter()
        code = L.llama_decode(self.handle, batch)
        # Asking for the first row also waits for a GPU, which has only been told so far. The others lie behind it.
        address = logits_address(self.handle, n - outputs) if outputs and code == 0 else 0
        self.busy_s += time.perf_counter() - started
        if code == 0:
            self.tokens.extend(tokens)
            self._rewinding.decoded(n)
            if outputs:
                self._logits = self._views_of(address, outputs)
            return
        if code not in _UNCHANGED:
            self._hold(self._rewinding.recover(len(self.tokens)))
        if code == 1:
            raise ContextFullError(f"The context of {self.size} tokens is full.")
        if code == 2 or self._cancel.is_set():
            raise CancelledError("Stopped.")
        raise SlipstreamError(
            f"{self.model.path.name} could not be computed (llama.cpp returned {code}). "
            "Load it again, with a shorter context if memory is short."
        )

    def logits(self, row: int) -> Logits:
        """Logits of row `row` of the last decode, shape (n_vocab,). A view that the next decode overwrites."""
        if not 0 <= row < len(self._logits):
            raise IndexError(f"row {row} of {len(self._logits)}")
        return self._logits[row]

    def _views_of(self, address: int, outputs: int) -> list[Logits]:
        """The rows at `address` as arrays. llama.cpp reuses its buffer, so most rounds find their views again."""
        views = self._views.get((address, outputs))
        if views is None:
            rows = (ctypes.c_float * (outputs * self.vocabulary_size)).from_address(address)
            views = list(np.frombuffer(rows, dtype=np.float32).reshape(outputs, -1))  # type: ignore[call-overload]
            if len(self._views) > 64:
                self._views.clear()
            self._views[address, outputs] = views
        return views

    def mark(self, ahead: int) -> None:
        """Before a draft: the next `ahead` tokens evaluated may have to be dropped."""
        started = time.perf_counter()
        self._rewinding.mark(len(self.tokens), ahead)
        self.busy_s += time.perf_counter() - started

    def keep(self) -> None:
        """Behind a prompt: another answer may begin here."""
        self._rewinding.keep(len(self.tokens))

    def rewind(self, length: int) -> None:
        """Drop what the memory holds after the first `length` tokens.

        Where this kind of memory cannot be cut there it drops more, at worst everything. The caller evaluates again
        what `tokens` then lacks.
        """
        held = len(self.tokens)
        if length < held:
            self._hold(self._rewinding.rewind(held, length) if length > 0 else 0)

    def clear(self) -> None:
        self._hold(0)

    def _hold(self, length: int) -> None:
        """The memory holds the first `length` tokens, or is made empty."""
        if length == 0:
            L.llama_memory_clear(self._memory, True)
            self._rewinding.clear()
        del self.tokens[length:]

    def _probe_rewinding(self, window: int) -> Rewinding:
        if self.size < 2:
            return NoRewinding()
        cancelled = self._cancel.is_set()
        self._cancel.clear()
        found = probe(self.handle or 0, window=window, decode=lambda tokens: self.decode(tokens, outputs=0))
        if cancelled:
            self._cancel.set()
        self.clear()
        found.clear()
        return found

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

        self._id_pointer, self._position_pointer = self._batch.token, self._batch.pos
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
            ids, positions = self._id_pointer, self._position_pointer
            for i, token in enumerate(tokens):
                ids[i] = token
                positions[i] = position + i
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
