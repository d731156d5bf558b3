"""What a session is made of: its states, the chats of this run, the answer being written, and the requests for one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from app.chat import Conversation, Message, ModelPair, Role
from app.engine.protocol import GenerationRequest, SamplingParams, SpeculationParams
from app.engine.rounds import Span
from app.engine.stats import SpeculationStats
from app.storage.settings import Settings
from app.ui.chat.messages import ShownMessage


class SessionState(StrEnum):
    no_model = "no_model"
    loading = "loading"
    idle = "idle"
    answering = "answering"
    stopping = "stopping"
    dead = "dead"  # the engine's process ended and was not started again


class ProblemKind(StrEnum):
    info = "info"
    warning = "warning"
    error = "error"


@dataclass(frozen=True)
class Problem:
    """Something the user should read. `can_restart` offers to load the pair again."""

    kind: ProblemKind
    sentence: str
    can_restart: bool = False


@dataclass(frozen=True)
class PairChoice:
    """What the picker hands over: the files and how to draft."""

    target: Path
    draft: Path | None
    drafter: Literal["model", "lookup", "none"]
    draft_length: int | None
    context: int

    @property
    def pair(self) -> ModelPair:
        return ModelPair(self.target, self.draft if self.drafter == "model" else None)


@dataclass
class Chat:
    """A conversation of this run and what the transcript shows of it."""

    conversation: Conversation = field(default_factory=Conversation)
    shown: list[ShownMessage] = field(default_factory=list)
    context_used: int = 0
    started: datetime = field(default_factory=datetime.now)

    @property
    def id(self) -> int:
        return self.conversation.id

    @property
    def title(self) -> str:
        return self.conversation.title or "New chat"


@dataclass
class OpenAnswer:
    """The answer being written."""

    chat: Chat
    request_id: int | None = None  # None only while it is being requested
    is_started: bool = False
    spans: list[Span] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    thinking_since: float | None = None  # on the monotonic clock
    reasoning_s: float | None = None

    def append(self, spans: Sequence[Span]) -> None:
        for span in spans:
            if span.is_reasoning and self.thinking_since is None:
                self.thinking_since = time.monotonic()
            elif not span.is_reasoning and self.reasoning_s is None and self.thinking_since is not None:
                self.reasoning_s = time.monotonic() - self.thinking_since
        self.spans += spans

    def shown(self, footer: str = "", notice: str = "") -> ShownMessage:
        text = "".join(span.text for span in self.spans if not span.is_reasoning)
        reasoning = "".join(span.text for span in self.spans if span.is_reasoning)
        return ShownMessage(Role.assistant, text, reasoning, tuple(self.spans), footer, notice, self.reasoning_s)


def request_of(conversation: Conversation, choice: PairChoice, settings: Settings) -> GenerationRequest:
    """The conversation as a request, with the sampling of the settings and the drafting of the pair."""
    return GenerationRequest(
        messages=_prompt_of(conversation, settings.system_prompt),
        sampling=SamplingParams(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
            repeat_penalty=settings.repeat_penalty,
            seed=settings.seed,
        ),
        # "auto" drafts with the draft model that was loaded, and with lookup if it turned out not to fit.
        speculation=SpeculationParams(
            drafter="auto" if choice.drafter == "model" else choice.drafter, draft_length=choice.draft_length
        ),
        max_tokens=settings.max_tokens,
    )


def _prompt_of(conversation: Conversation, system_prompt: str) -> tuple[Message, ...]:
    """The messages to send. Templates want turns to alternate, so unanswered user messages become one."""
    messages: list[Message] = []
    if system_prompt.strip():
        messages.append(Message.of(Role.system, system_prompt))
    for message in conversation.messages:
        if not message.text:
            continue
        if messages and messages[-1].role is message.role is Role.user:
            messages[-1] = Message.of(Role.user, f"{messages[-1].text}\n\n{message.text}")
        else:
            messages.append(message)
    return tuple(messages)
