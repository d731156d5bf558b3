"""What the loop and the drafters need of a model's memory, and how a prompt is fed to it.

`app.engine.context.Context` is the real one; the tests have one that is a table of probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

_LAG = 4  # tokens that may ride along with a draft instead of costing a decode of their own


class TokenMemory(Protocol):
    """A model with a memory of tokens. See `app.engine.context.Context` for what each member promises."""

    tokens: list[int]
    size: int
    busy_s: float  # seconds spent in decodes so far

    @property
    def capacity(self) -> int: ...
    @property
    def vocabulary_size(self) -> int: ...
    def decode(self, tokens: Sequence[int], outputs: int) -> None: ...
    def logits(self, row: int) -> npt.NDArray[np.float32]: ...
    def mark(self, ahead: int) -> None: ...
    def keep(self) -> None: ...
    def rewind(self, length: int) -> None: ...
    def clear(self) -> None: ...


def reusable_prefix(held: Sequence[int], wanted: Sequence[int]) -> int:
    """How many tokens in a context can stay for a new prompt. Never all: the last must be evaluated for its logits."""
    limit = min(len(held), len(wanted) - 1)
    if limit <= 0:
        return 0
    differing = np.flatnonzero(np.asarray(held[:limit]) != np.asarray(wanted[:limit]))
    return int(differing[0]) if differing.size else limit


def evaluate(
    memory: TokenMemory,
    pending: Sequence[int],
    outputs: int,
    on_progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Evaluate `pending` behind what the memory holds, with logits for the last `outputs`, which share one batch.

    `on_progress` hears after each batch how many tokens the memory holds.
    """
    done = 0
    while done < len(pending):
        left = len(pending) - done
        n = left if left <= memory.capacity else min(memory.capacity, left - outputs)
        memory.decode(pending[done : done + n], outputs if n == left else 0)
        done += n
        on_progress(len(memory.tokens))


def evaluate_draft(memory: TokenMemory, pending: Sequence[int], draft: Sequence[int]) -> None:
    """Evaluate `pending` and a draft behind it in one pass, with logits for the last pending and every draft token.

    A memory that went back to a checkpoint lacks kept tokens as well. They ride along while they are few; otherwise
    they are evaluated first, so that the next checkpoint stands behind them and not one more rejection repeats them.
    """
    if draft:
        if len(pending) > _LAG:
            evaluate(memory, pending[:-1], outputs=0)
            pending = pending[-1:]
        memory.mark(len(draft))
    evaluate(memory, [*pending, *draft], outputs=len(draft) + 1)
