"""What a session is made of: its states, the chats of this run, the answer being written, and the requests for one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from app.chat import Conversation, Message, ModelPair, Role
from app.engine.protocol import DrafterChoice, GenerationRequest, PairLoaded, SpeculationParams, VerifyRule
from app.engine.rounds import Span
from app.engine.stats import SpeculationStats
from app.storage.settings import Settings
from app.ui.chat.messages import ShownMessage
from app.ui.sampling import sampling_of


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
    """What the picker hands over: the files and how to draft. "auto" without a draft file is lookup."""

    target: Path
    draft: Path | None
    drafter: DrafterChoice
    context: int

    @property
    def pair(self) -> ModelPair:
        return ModelPair(self.target, self.draft if self.drafter in ("auto", "model") else None)


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


def request_of(
    conversation: Conversation, choice: PairChoice, settings: Settings, loaded: PairLoaded | None
) -> GenerationRequest:
    """The conversation as a request, with the sampling of the settings and the drafting of the pair."""
    # A draft model that was refused leaves lookup, whatever else was chosen.
    lacks_draft = choice.drafter == "model" and loaded is not None and loaded.draft_problem
    return GenerationRequest(
        messages=_prompt_of(conversation, settings.system_prompt),
        sampling=sampling_of(settings, loaded.target.suggested if loaded else {}),
        speculation=SpeculationParams(
            drafter="auto" if lacks_draft else choice.drafter,
            draft_length=settings.draft_length,
            verify=VerifyRule(settings.verify),
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
