"""What proposes tokens: a draft model, the text so far, or nothing.

A drafter is told of every committed token and never asks. To add one, implement `Drafter` and choose it in
`LoadedPair.drafter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from app.engine.acceptance import confidence_of
from app.engine.memory import TokenMemory, evaluate, reusable_prefix
from app.engine.pacing import Pace
from app.engine.rounds import DrafterKind
from app.engine.sampling import Sampler
from app.engine.verify import Draft, Rule
from app.errors import CancelledError, SlipstreamError


class Drafter(Protocol):
    kind: DrafterKind

    @property
    def paused(self) -> str | None:
        """Why it proposes nothing any more in this answer, as a sentence."""

    def begin(self, tokens: Sequence[int]) -> None:
        """A new answer starts behind `tokens`."""

    def draft(self, pace: Pace) -> Draft:
        """Propose tokens behind the committed ones, as many as `pace` wants. Raises CancelledError only."""

    def commit(self, tokens: Sequence[int], accepted: int) -> None:
        """The round is over: `tokens` are now part of the text, the first `accepted` of them from the draft."""


class NoDrafter:
    """Plain decoding is the same loop with empty drafts."""

    kind = DrafterKind.none
    paused: str | None = None

    def begin(self, tokens: Sequence[int]) -> None: ...

    def draft(self, pace: Pace) -> Draft:
        return Draft()

    def commit(self, tokens: Sequence[int], accepted: int) -> None: ...


class ModelDrafter:
    """A small model runs ahead.

    Its memory may lag behind the text: it catches up when a draft is wanted, so that a round costs it γ decodes and
    nothing is evaluated twice. `vocabulary_size` is the target's: ids beyond it are never proposed.
    """

    kind = DrafterKind.model

    def __init__(
        self,
        context: TokenMemory,
        sampler: Sampler,
        rule: Rule,
        *,
        vocabulary_size: int,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        self.paused: str | None = None
        self._context = context
        self._sampler = sampler.for_draft()
        self._rule = rule
        self._vocabulary_size = vocabulary_size
        self._ends = ends  # behind one of these no draft token can count
        self._tokens: list[int] = []

    def begin(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)
        self.paused = None
        self._context.rewind(reusable_prefix(self._context.tokens, tokens))
        self._check(tokens)

    def draft(self, pace: Pace) -> Draft:
        draft = Draft(self.kind)
        context, text = self._context, self._tokens
        # The last draft token is proposed, not evaluated: it needs no room in the draft's context.
        room = context.size - len(text) + 1
        if room < 1:
            self.paused = f"Paused: the draft's context of {context.size} tokens is full."
        if self.paused:
            return draft
        try:
            while len(draft) < room and pace.goes_on(self.kind, len(text) + len(draft) - len(context.tokens)):
                pending = [*text[len(context.tokens) :], *draft.tokens[-1:]]
                before = context.busy_s
                if len(draft) == 1:
                    context.mark(ahead=1)  # the first token not of the text goes in
                evaluate(context, pending, outputs=1)
                draft.steps.append((len(pending), context.busy_s - before))
                logits = self._logits()
                probs = self._sampler.distribution(logits, text, draft.tokens)
                confidence = confidence_of(probs, logits) if pace.needs_confidence else 1.0
                if not pace.takes(self.kind, confidence):
                    break
                token = self._rule.draw(probs, len(text) + len(draft))
                draft.tokens.append(token)
                draft.probs.append(probs)
                draft.confidences.append(confidence)
                if token in self._ends:
                    break
        except CancelledError:
            raise
        except SlipstreamError as error:
            # A draft that fails costs speed, never the answer.
            context.clear()
            self.paused = f"Paused: the draft failed. {error}"
            return Draft(self.kind)
        return draft

    def commit(self, tokens: Sequence[int], accepted: int) -> None:
        kept = len(self._tokens) + min(accepted, len(tokens))
        self._tokens.extend(tokens)
        self._context.rewind(kept)
        self._check(tokens)

    @property
    def pending(self) -> int:
        """How many tokens must be evaluated for the first draft token."""
        return len(self._tokens) - len(self._context.tokens)

    def _logits(self) -> npt.NDArray[np.float32]:
        logits = self._context.logits(0)
        return logits[: self._vocabulary_size] if len(logits) > self._vocabulary_size else logits

    def _check(self, tokens: Sequence[int]) -> None:
        if max(tokens, default=0) >= self._context.vocabulary_size:
            self.paused = "Paused: the text holds a token that the draft's vocabulary lacks."


class ReadyDrafter(Drafter, Protocol):
    """A drafter whose proposals cost nothing."""

    def propose(self, limit: int) -> Draft:
        """Up to `limit` tokens with their confidences; the verdict on them is read from `commit`, drafted or not."""


class CostlyDrafter(Drafter, Protocol):
    """A drafter that computes its tokens one by one."""

    @property
    def pending(self) -> int:
        """How many tokens must be evaluated for the first draft token."""


class ChainedDrafter:
    """Lookup where it promises more than the model, else the model, else nothing: the pace decides what is worth it."""

    kind = DrafterKind.chained

    def __init__(self, ready: ReadyDrafter, model: CostlyDrafter) -> None:
        self._ready = ready
        self._model = model

    @property
    def paused(self) -> str | None:
        return self._model.paused

    def begin(self, tokens: Sequence[int]) -> None:
        self._ready.begin(tokens)
        self._model.begin(tokens)

    def draft(self, pace: Pace) -> Draft:
        ready = self._ready.propose(pace.limit)
        rival = None if self._model.paused else self._model.pending
        taken = pace.cut(self._ready.kind, ready.confidences, rival)
        return ready.first(taken) if taken else self._model.draft(pace)

    def commit(self, tokens: Sequence[int], accepted: int) -> None:
        self._ready.commit(tokens, accepted)
        self._model.commit(tokens, accepted)
