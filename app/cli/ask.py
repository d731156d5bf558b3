"""`slipstream ask`: one question, one answer."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app import paths
from app.chat import Message, ModelPair, Role
from app.cli.as_json import model_json, speculation_json
from app.cli.sampling_options import chosen_sampling
from app.cli.screen import Screen
from app.engine import Engine, GenerationRequest, LoadOptions, SpeculationParams
from app.engine.protocol import DrafterChoice, Event, GenerationFinished, GenerationStarted, PairLoaded, RoundFinished
from app.engine.rounds import Span, StopReason, Token
from app.engine.stats import SpeculationStats
from app.engine.suggested import sampling_of
from app.errors import ModelFileError, PairError, UsageError
from app.storage.experiences import ExperienceStore
from app.storage.settings import SettingsStore


def ask(options: argparse.Namespace) -> int:
    messages = _messages(options)
    pair, drafter = _pair(options)
    speculation = SpeculationParams(drafter, options.draft_length, options.verify)
    load_options = LoadOptions(options.context, options.gpu_layers, options.threads)
    screen = Screen(is_quiet=options.json)
    experiences = ExperienceStore(paths.experience_folder())
    with Engine() as engine:
        loaded = engine.load(pair, load_options, experience=experiences.load(pair, load_options))
        if loaded.draft_problem:
            # Asked for by name, a draft that cannot serve is an error, not a detail.
            raise PairError(loaded.draft_problem)
        answer = _Answer(loaded)
        try:
            sampling = sampling_of(loaded.target.suggested, chosen_sampling(options))
            request = GenerationRequest(messages, sampling, speculation, options.max_tokens)
            for event in engine.generate(request):
                answer.take(event)
                screen.show(event)
        except KeyboardInterrupt:
            # Leaving the loop has told the engine to stop; what is written stays.
            answer.interrupted = True
    screen.end(answer.stats, answer.finished)
    if answer.finished and answer.finished.experience:
        experiences.save(pair, load_options, answer.finished.experience)
    if options.json and answer.finished:
        print(json.dumps(answer.as_json(), ensure_ascii=False))
    return answer.exit_code()


def _messages(options: argparse.Namespace) -> tuple[Message, ...]:
    prompt = options.prompt
    if prompt is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                'Nothing was asked. Use: slipstream ask "your question", or send a text to standard input.'
            )
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not prompt.strip():
        raise UsageError("The question is empty.")
    system = (Message.of(Role.system, options.system),) if options.system else ()
    return (*system, Message.of(Role.user, prompt))


def _pair(options: argparse.Namespace) -> tuple[ModelPair, DrafterChoice]:
    """The files to load and what drafts: as asked, else as chosen last in the window, else the starter model."""
    target, draft = options.target, options.draft
    drafter: DrafterChoice = "auto"
    if target is None:
        settings = SettingsStore(paths.settings_file()).load()
        if settings.target and Path(settings.target).exists():
            target = settings.target
            if draft is None:
                drafter, draft = settings.drafter, settings.draft
        else:
            target = paths.starter_model()
            if target is None:
                raise ModelFileError("There is no starter model in this installation. Name a model: --target FILE.gguf")
    if draft in ("lookup", "none"):
        drafter = draft
    if draft is None or drafter in ("lookup", "none"):
        return ModelPair(Path(target)), drafter
    if not Path(draft).exists():
        raise ModelFileError(f"There is no draft file {draft}.")
    return ModelPair(Path(target), Path(draft)), drafter


class _Answer:
    """Gathers the events of one answer."""

    def __init__(self, loaded: PairLoaded) -> None:
        self.loaded = loaded
        self.stats = SpeculationStats()
        self.finished: GenerationFinished | None = None
        self.interrupted = False
        self._started: GenerationStarted | None = None
        self._tokens: list[Token] = []
        self._spans: list[Span] = []

    def take(self, event: Event) -> None:
        match event:
            case GenerationStarted():
                self._started = event
            case RoundFinished():
                self.stats.observe(event.round)
                self._tokens += event.round.tokens
                self._spans += event.spans
            case GenerationFinished():
                self.finished = event
                self._spans += event.spans

    def exit_code(self) -> int:
        if self.interrupted or (self.finished and self.finished.stop_reason is StopReason.cancelled):
            return 130
        if self.finished and self.finished.error:
            raise self.finished.error.to_error()
        return 0

    def as_json(self) -> dict[str, Any]:
        """The contract of DESIGN, section 5."""
        assert self.finished is not None
        finished, stats = self.finished, self.stats
        return {
            "text": "".join(span.text for span in self._spans if not span.is_reasoning),
            "reasoning": "".join(span.text for span in self._spans if span.is_reasoning),
            "stop_reason": finished.stop_reason,
            "seed": finished.seed,
            "prompt_tokens": finished.prompt_tokens,
            "reused_tokens": finished.reused_tokens,
            "answer_tokens": finished.answer_tokens,
            "target": model_json(self.loaded.target),
            "draft": model_json(self.loaded.draft) if self.loaded.draft else None,
            "drafter": self._started.drafter if self._started else "none",
            "timing": asdict(finished.timing),
            "speculation": speculation_json(stats),
            "tokens": [{"id": t.id, "text": t.text, "source": t.source} for t in self._tokens],
        }
