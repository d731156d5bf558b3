"""One request in the worker, from its messages to its last event."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from app.engine.drafters import Drafter
from app.engine.generate import Answer, generate
from app.engine.loaded import LoadedPair
from app.engine.pacing import Pacing
from app.engine.prompt import Prompt
from app.engine.protocol import (
    Fault,
    Generate,
    GenerationFinished,
    GenerationStarted,
    PacingReport,
    PromptProgressed,
    RoundFinished,
    Timing,
    VerifyRule,
    WorkerEvent,
)
from app.engine.rounds import DrafterKind, Round, Span, StopReason
from app.engine.sampling import Sampler, fresh_seed, validate
from app.engine.text import TextStream
from app.engine.verify import Comparison, Coupled, Rejection, Rule
from app.errors import CancelledError, SlipstreamError

_REPORT_EVERY = 8  # rounds


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
        self._pacing: Pacing | None = None
        self._off = ""  # why nothing drafts, if nothing does
        self._rounds = 0
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
        sampler = Sampler(request.sampling, vocabulary.suppressed, seed=self._seed, spellings=vocabulary.spellings)
        rule = _rule(request.speculation.verify, self._seed, sampler.needs_comparison)
        drafter, why = self._pair.drafter(request.speculation, request.sampling, sampler, rule)
        self._off = why if drafter.kind is DrafterKind.none else ""
        ends = vocabulary.ends.union(self._pair.prompts.turn_end_tokens())
        stream = TextStream(
            vocabulary.piece,
            stop=(*request.stop, *prompt.stop),
            reasoning=prompt.reasoning_tags,
            starts_in_reasoning=prompt.starts_in_reasoning,
        )
        pacing = self._pacing = self._pair.pacing(request.speculation, request.sampling)
        answer = Answer(stream, ends.__contains__, request.max_tokens or sys.maxsize)
        rounds = generate(
            target,
            drafter,
            prompt.tokens,
            answer,
            sampler=sampler,
            rule=rule,
            pacing=pacing,
            is_cancelled=self._is_cancelled,
            on_prompt=lambda held: self._on_prompt(held, prompt, drafter, why),
        )
        error: Fault | None = None
        try:
            for finished in rounds:
                self._observe(finished)
                context_used = self._prompt_tokens + len(answer.tokens)
                report = self._news()
                spans = stream.release()
                self._send(RoundFinished(self._id, finished, spans, context_used, drafter.paused, report))
        except SlipstreamError as failure:
            answer.stop_reason, error = StopReason.failed, Fault.of(failure)
        self._pair.prompts.remember(prompt, [token.id for token in answer.tokens])
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

    def _news(self) -> PacingReport | None:
        """What pacing does, where it is not what was told last, or once in a while for its figures."""
        self._rounds += 1
        return None if self._rounds % _REPORT_EVERY else self._report()

    def _report(self) -> PacingReport | None:
        if self._pacing is None:
            return None
        report = self._pacing.report()
        return replace(report, state="off", sentence=self._off) if self._off else report

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
                self._report(),
                self._pair.experience.to_plain(),
            )
        )


def _rule(wanted: VerifyRule, seed: int, needs_comparison: bool) -> Rule:
    if wanted is VerifyRule.coupled:
        return Coupled(seed)
    rng = np.random.default_rng(seed)
    return Comparison(rng) if needs_comparison else Rejection(rng)
