"""★ Read this first: the loop of speculative decoding, prefill → draft → verify → accept → rewind.

Invariant: `tokens` is the text so far, and its last token is not yet in the target's memory. A round evaluates that
pending token together with the draft in one pass; row i of the logits is the target's word on what follows the first
i draft tokens. Plain decoding is the same loop with empty drafts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.engine.acceptance import confidence_of
from app.engine.drafters import Drafter
from app.engine.memory import TokenMemory, evaluate, evaluate_draft, reusable_prefix
from app.engine.pacing import Pacing
from app.engine.protocol import MAX_DRAFT_LENGTH
from app.engine.rounds import DrafterKind, Round, RoundTimes, StopReason, Token, TokenSource
from app.engine.sampling import Distribution, Sampler
from app.engine.verify import Draft, Rule, Verdict
from app.errors import CancelledError, ContextFullError


class Text(Protocol):
    """Where tokens become text: `app.engine.text.TextStream`."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete."""

    def push(self, token: int, source: TokenSource, drafter: DrafterKind) -> str:
        """The text that the token added."""

    def show(self, token: int) -> str:
        """How a token reads on its own, in no text."""


@dataclass
class Answer:
    """The answer being written. Decides, token by token and in order, where it ends."""

    text: Text
    is_end: Callable[[int], bool]
    max_tokens: int
    tokens: list[Token] = field(default_factory=list)
    stop_reason: StopReason | None = None

    @property
    def room(self) -> int:
        return self.max_tokens - len(self.tokens)

    def take(self, token: int, source: TokenSource, drafter: DrafterKind) -> Token:
        """Append a token. The end of a turn counts before a stop string, and both before the limit."""
        if self.is_end(token):
            taken = Token(token, source)
            self.stop_reason = StopReason.end_of_turn
        else:
            taken = Token(token, source, self.text.push(token, source, drafter))
            if self.text.stopped:
                self.stop_reason = StopReason.stop_string
        self.tokens.append(taken)
        if self.stop_reason is None and self.room <= 0:
            self.stop_reason = StopReason.max_tokens
        return taken


def generate(
    target: TokenMemory,
    drafter: Drafter,
    prompt: Sequence[int],
    answer: Answer,
    *,
    sampler: Sampler,
    rule: Rule,
    pacing: Pacing,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_prompt: Callable[[int], None] = lambda held: None,
) -> Iterator[Round]:
    """Write `answer` behind `prompt` (>= 1 token), one Round at a time, until `answer.stop_reason` is set.

    `on_prompt` hears how many prompt tokens the target's memory holds while it is read. Leaves the memories holding
    nothing but tokens of prompt and answer. Raises SlipstreamError when the target cannot be computed.
    """
    tokens = list(prompt)
    number = 0
    try:
        # Prefill: all but the last token, which the first round evaluates.
        target.rewind(reusable_prefix(target.tokens, tokens))
        on_prompt(len(target.tokens))
        held, before = len(target.tokens), target.busy_s
        evaluate(target, tokens[held:-1], outputs=0, on_progress=on_prompt)
        pacing.observe_prompt(len(target.tokens) - held, target.busy_s - before)
        target.keep()
        drafter.begin(tokens)

        started = time.perf_counter()
        while answer.stop_reason is None:
            if is_cancelled():
                raise CancelledError("Stopped.")

            # Draft. The first round has none: the first token comes as early as without a draft.
            limit = min(answer.room - 1, target.size - len(tokens), MAX_DRAFT_LENGTH)
            draft = drafter.draft(pacing.begin(limit, answer.room)) if number > 0 and limit > 0 else Draft()

            # Verify: one pass of the target over the pending token and the whole draft.
            before, lag = target.busy_s, len(tokens) - 1 - len(target.tokens)
            evaluate_draft(target, tokens[len(target.tokens) :], draft.tokens)
            verify_s = target.busy_s - before
            target_probs = _TargetProbs(target, tokens, draft, sampler)
            verdict = rule.verify(draft, target_probs, len(tokens))
            certainty = target_probs.confidence() if pacing.needs_confidence else 1.0

            # Accept: everything up to the end of the answer, wherever in the round that is.
            new = _accept(draft, verdict, answer)
            accepted = min(verdict.accepted, len(new))
            tokens += [token.id for token in new]

            # Rewind: the last token stays pending; the drafter hears what became text.
            target.rewind(len(tokens) - 1)
            drafter.commit([token.id for token in new], accepted)
            sampler.commit([token.id for token in new])
            if answer.stop_reason is None and len(tokens) > target.size:
                answer.stop_reason = StopReason.context_full

            ended_inside = len(new) <= verdict.accepted
            unkept = len(draft) - accepted
            now = time.perf_counter()
            finished = Round(
                number=number,
                drafter=draft.drafter if len(draft) else DrafterKind.none,
                tokens=tuple(new),
                drafted=len(draft),
                accepted=accepted,
                rejected=0 if ended_inside else unkept,
                discarded=unkept if ended_inside else 0,
                times=RoundTimes(draft.seconds, verify_s, now - started - draft.seconds - verify_s),
                rejected_texts=() if ended_inside else tuple(map(answer.text.show, draft.tokens[accepted:])),
            )
            started, number = now, number + 1
            pacing.observe(finished, draft, certainty, lag)
            yield finished
    except CancelledError:
        answer.stop_reason = StopReason.cancelled
    except ContextFullError:
        answer.stop_reason = StopReason.context_full
    finally:
        # However the loop ends, the memories hold tokens of the text and nothing of an unfinished round.
        target.rewind(len(tokens) - 1)
        drafter.commit((), 0)


class _TargetProbs:
    """What the target draws from behind the first i draft tokens of this round."""

    def __init__(self, target: TokenMemory, tokens: Sequence[int], draft: Draft, sampler: Sampler) -> None:
        self._target = target
        self._tokens = tokens
        self._draft = draft
        self._sampler = sampler

    def __call__(self, i: int) -> Distribution:
        self._last = i, self._sampler.distribution(self._target.logits(i), self._tokens, self._draft.tokens[:i])
        return self._last[1]

    def confidence(self) -> float:
        """How sure the target was where it drew the round's last token."""
        i, probs = self._last
        return confidence_of(probs, self._target.logits(i))


def _accept(draft: Draft, verdict: Verdict, answer: Answer) -> list[Token]:
    """Give the accepted draft tokens and the target's own to the answer, until it ends."""
    new = []
    for token in draft.tokens[: verdict.accepted]:
        new.append(answer.take(token, TokenSource.draft, draft.drafter))
        if answer.stop_reason:
            return new
    new.append(answer.take(verdict.token, verdict.source, draft.drafter))
    return new
