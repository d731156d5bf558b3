"""How a memory loses its tail after a rejected draft: one class for each kind, chosen by trying it after loading.

Attention keeps every token apart and drops any of them. A recurrent state is all of the text at once: it can only be
put back to where a copy of it was made. Every `rewind` and `recover` tells how many tokens the memory holds afterwards;
that may be fewer than were to stay, 0 meaning that it must be cleared, and the caller evaluates them again.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from app.engine.llama import L

SNAPSHOTS = 4  # of its state that a recurrent target keeps for every token of its last batch, where llama.cpp can
_KEPT = 2  # places that answers may begin at again: this one's and the one before
_PARTIAL = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: what cannot be cut (states and windows), without the attention cells


class Rewinding(Protocol):
    """`held` is always how many tokens the memory holds."""

    can_rewind: bool  # whether a draft may be tried at all

    def decoded(self, n: int) -> None:
        """A batch of `n` tokens went through."""

    def mark(self, held: int, ahead: int) -> None:
        """The next `ahead` tokens may have to go again."""

    def keep(self, held: int) -> None:
        """A later answer may begin here again."""

    def rewind(self, held: int, length: int) -> int:
        """Drop what stands behind the first `length` (1 to `held` - 1) tokens."""

    def recover(self, held: int) -> int:
        """A batch behind `held` tokens was aborted or failed."""

    def clear(self) -> None:
        """The memory is empty from here on."""


class NoRewinding:
    """A memory that only goes on or starts again. Plain decoding never needs more."""

    can_rewind = False

    def decoded(self, n: int) -> None: ...

    def mark(self, held: int, ahead: int) -> None: ...

    def keep(self, held: int) -> None: ...

    def rewind(self, held: int, length: int) -> int:
        return 0

    def recover(self, held: int) -> int:
        return 0

    def clear(self) -> None: ...


class Removal(NoRewinding):
    """Attention: the cells of dropped tokens are freed, at no cost.

    `window` is in tokens, 0 where nothing is ever dropped from a sliding window. llama.cpp grants every removal, also
    one that goes back behind what the window still holds; what follows would then be computed from a gap. So the
    oldest token held decides, as in llama.cpp's server.
    """

    can_rewind = True

    def __init__(self, memory: int, window: int) -> None:
        self._memory = memory
        self._window = window

    def rewind(self, held: int, length: int) -> int:
        if self._window and L.llama_memory_seq_pos_min(self._memory, 0) > max(0, length - self._window):
            return 0
        return length if L.llama_memory_seq_rm(self._memory, 0, length, -1) else 0

    def recover(self, held: int) -> int:
        # llama.cpp has removed the tokens of the aborted batch itself.
        return min(held, int(L.llama_memory_seq_pos_max(self._memory, 0)) + 1)


class _Checkpoint(NamedTuple):
    length: int  # tokens
    state: npt.NDArray[np.uint8]


class Checkpoints:
    """Recurrent and hybrid memories: the state is copied before a draft and put back when tokens must go.

    A copy is of one size for any text (the attention cells of a hybrid are cut as usual). It takes milliseconds, so
    none is made for a round without a draft. All copies are of beginnings of what is held.
    """

    can_rewind = True

    def __init__(self, context: int, memory: int) -> None:
        self._context = context
        self._memory = memory
        self._round: _Checkpoint | None = None
        self._kept: deque[_Checkpoint] = deque(maxlen=_KEPT)
        self._buffer = np.empty(0, np.uint8)  # of the round's copy: touching new memory costs as much as copying

    def decoded(self, n: int) -> None: ...

    def mark(self, held: int, ahead: int) -> None:
        if ahead and all(place.length != held for place in self._places()):
            self._round = self._copy(held, self._buffer)
            if self._round:
                self._buffer = self._round.state

    def keep(self, held: int) -> None:
        if all(kept.length != held for kept in self._kept) and (copy := self._copy(held)):
            self._kept.append(copy)

    def rewind(self, held: int, length: int) -> int:
        self._forget_behind(length)
        nearest = max(self._places(), key=lambda place: place.length, default=None)
        return nearest.length if nearest and self._put_back(nearest) else 0

    def recover(self, held: int) -> int:
        # What an aborted batch leaves in a recurrent state is undefined.
        return self.rewind(held, held)

    def clear(self) -> None:
        self._forget_behind(-1)

    def _places(self) -> list[_Checkpoint]:
        return [*self._kept, self._round] if self._round else list(self._kept)

    def _forget_behind(self, length: int) -> None:
        self._kept = deque((kept for kept in self._kept if kept.length <= length), maxlen=_KEPT)
        if self._round and self._round.length > length:
            self._round = None

    def _copy(self, held: int, buffer: npt.NDArray[np.uint8] | None = None) -> _Checkpoint | None:
        size = L.llama_state_seq_get_size_ext(self._context, 0, _PARTIAL) if held else 0
        state = buffer if buffer is not None and len(buffer) == size else np.empty(size, np.uint8)
        if size and L.llama_state_seq_get_data_ext(self._context, _bytes_of(state), size, 0, _PARTIAL) == size:
            return _Checkpoint(held, state)
        return None

    def _put_back(self, place: _Checkpoint) -> bool:
        size = len(place.state)
        if L.llama_state_seq_set_data_ext(self._context, _bytes_of(place.state), size, 0, _PARTIAL) != size:
            return False
        # The attention cells of a hybrid are no part of the copy.
        return bool(L.llama_memory_seq_rm(self._memory, 0, place.length, -1))


class Snapshots(Checkpoints):
    """Some hybrids: llama.cpp keeps the state behind each of the last `count` tokens of a batch as well.

    Going back there costs nothing, but only once between two batches, never behind the last one, and each snapshot
    needs as much memory as the state. A longer draft takes a checkpoint.
    """

    def __init__(self, context: int, memory: int, count: int) -> None:
        super().__init__(context, memory)
        self._count = count
        self._reach = 0  # tokens that the next rewind can drop

    def decoded(self, n: int) -> None:
        # llama.cpp would agree to drop a whole short batch too, and put back a snapshot that is older than that.
        self._reach = min(n - 1, self._count)

    def mark(self, held: int, ahead: int) -> None:
        super().mark(held, ahead if ahead > self._count else 0)

    def rewind(self, held: int, length: int) -> int:
        within_reach, self._reach = held - length <= self._reach, 0
        if within_reach and held > length and L.llama_memory_seq_rm(self._memory, 0, length, -1):
            self._forget_behind(length)
            return length
        return super().rewind(held, length)


def _bytes_of(state: npt.NDArray[np.uint8]) -> object:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def probe(context: int, *, window: int, decode: Callable[[Sequence[int]], None]) -> Rewinding:
    """What kind of memory `context` has, found out by two tokens and an attempt to drop one, as llama.cpp's tools do.

    Leaves tokens behind: the caller clears the memory.
    """
    memory = L.llama_get_memory(context)
    decode([0])
    checkpoints = Checkpoints(context, memory)
    checkpoints.mark(1, ahead=1)
    decode([0])
    if L.llama_memory_seq_rm(memory, 0, 1, -1):
        count = L.llama_n_rs_seq(context)
        return Snapshots(context, memory, count) if count else Removal(memory, window)
    if checkpoints.rewind(2, 1) == 1 and L.llama_memory_seq_pos_max(memory, 0) == 0:
        return Checkpoints(context, memory)
    return NoRewinding()
