"""One request in the worker, from its messages to its last event."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from app.engine.drafters import Drafter
from app.engine.generate import Answer, generate
from app.engine.loaded import LoadedPair
from app.engine.pacing import FixedPacing
from app.engine.prompt import Prompt
from app.engine.protocol import (
    Fault,
    Generate,
    GenerationFinished,
    GenerationStarted,
    PromptProgressed,
    RoundFinished,
    Timing,
    VerifyRule,
    WorkerEvent,
)
from app.engine.rounds import Round, Span, StopReason
from app.engine.sampling import Sampler, fresh_seed, validate
from app.engine.text import TextStream
from app.engine.verify import Coupled, Rejection, Rule
from app.errors import CancelledError, SlipstreamError


class AnswerRequest:
    """Answers a Generate command with GenerationStarted, RoundFinished … and, by `answer` or `give_up`, its end."""

    def __init__(
        self,
        command: Generate,
        pair: LoadedPair,
        is_cancelled: Callable[[], bool],
        send: Callable[[WorkerEvent], None],
        load_s: float,
    ) -> None:
        self._id = command.request_id
        self._request = command.request
        self._pair = pair
        self._is_cancelled = is_cancelled
        self._send = send
        self._load_s = load_s
        self._started = time.perf_counter()
        self._seed = fresh_seed() if command.request.sampling.seed is None else command.request.sampling.seed
        self._prompt_tokens = 0
        self._reused_tokens: int | None = None  # known when the prompt is read
        self._first_token_s: float | None = None
        self._draft_s = self._verify_s = self._sample_s = 0.0

    def answer(self) -> None:
        """Raises SlipstreamError where nothing could be written at all; then `give_up` ends the request."""
        request, target = self._request, self._pair.target
        validate(request)
        if self._is_cancelled():
            raise CancelledError("Stopped.")
        prompt = self._pair.prompts.build(request.messages, max_tokens=request.max_tokens)
        self._prompt_tokens = len(prompt.tokens)
        vocabulary = self._pair.model.vocabulary
        sampler = Sampler(request.sampling, vocabulary.suppressed)
        rule = _rule(request.speculation.verify, self._seed)
        drafter, why = self._pair.drafter(request.speculation, sampler, rule)
        ends = vocabulary.ends.union(self._pair.prompts.turn_end_tokens())
        stream = TextStream(
            vocabulary.piece,
            stop=(*request.stop, *prompt.stop),
            reasoning=prompt.reasoning_tags,
            starts_in_reasoning=prompt.starts_in_reasoning,
        )
        answer = Answer(stream, ends.__contains__, request.max_tokens or sys.maxsize)
        rounds = generate(
            target,
            drafter,
            prompt.tokens,
            answer,
            sampler=sampler,
            rule=rule,
            pacing=FixedPacing(request.speculation.draft_length),
            is_cancelled=self._is_cancelled,
            on_prompt=lambda held: self._on_prompt(held, prompt, drafter, why),
        )
        error: Fault | None = None
        try:
            for finished in rounds:
                self._observe(finished)
                context_used = self._prompt_tokens + len(answer.tokens)
                self._send(RoundFinished(self._id, finished, stream.release(), context_used, drafter.paused))
        except SlipstreamError as failure:
            answer.stop_reason, error = StopReason.failed, Fault.of(failure)
        rest = (*stream.release(), *stream.finish())
        self._finish(answer.stop_reason or StopReason.failed, len(answer.tokens), rest, error)

    def give_up(self, error: SlipstreamError) -> None:
        """The end of a request of which nothing was written."""
        is_cancelled = isinstance(error, CancelledError)
        reason = StopReason.cancelled if is_cancelled else StopReason.failed
        self._finish(reason, 0, (), None if is_cancelled else Fault.of(error))

    def _on_prompt(self, held: int, prompt: Prompt, drafter: Drafter, why: str) -> None:
        if self._reused_tokens is None:
            self._reused_tokens = held
            self._send(GenerationStarted(self._id, self._prompt_tokens, held, drafter.kind, why, prompt.notes))
        else:
            self._send(PromptProgressed(self._id, held, self._prompt_tokens))

    def _observe(self, finished: Round) -> None:
        if self._first_token_s is None:
            self._first_token_s = time.perf_counter() - self._started
        self._draft_s += finished.times.draft
        self._verify_s += finished.times.verify
        self._sample_s += finished.times.sample

    def _finish(self, reason: StopReason, answer_tokens: int, rest: tuple[Span, ...], error: Fault | None) -> None:
        total_s = time.perf_counter() - self._started
        prefill_s = total_s if self._first_token_s is None else self._first_token_s
        decode_s = total_s - prefill_s
        self._send(
            GenerationFinished(
                self._id,
                reason,
                self._seed,
                self._prompt_tokens,
                self._reused_tokens or 0,
                answer_tokens,
                Timing(
                    load_s=self._load_s,
                    prefill_s=prefill_s,
                    first_token_s=self._first_token_s,
                    decode_s=decode_s,
                    draft_s=self._draft_s,
                    verify_s=self._verify_s,
                    sample_s=self._sample_s,
                    tokens_per_s=(answer_tokens - 1) / decode_s if answer_tokens > 1 and decode_s > 0 else None,
                ),
                rest,
                error,
            )
        )


def _rule(wanted: VerifyRule, seed: int) -> Rule:
    return Coupled(seed) if wanted is VerifyRule.coupled else Rejection(np.random.default_rng(seed))
