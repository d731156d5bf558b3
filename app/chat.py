"""The words every layer shares: messages, conversations and the pair of models that answers. Plain values only."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path


class Role(StrEnum):
    system = "system"
    user = "user"
    assistant = "assistant"


@dataclass(frozen=True)
class TextPart:
    """A run of text in a message. Other kinds of part (pictures) will stand beside it."""

    text: str


@dataclass(frozen=True)
class Message:
    """One turn. `reasoning` is kept apart from the content from the moment it arrives, never cut out of text later."""

    role: Role
    parts: tuple[TextPart, ...]
    reasoning: str = ""

    @classmethod
    def of(cls, role: Role, text: str, reasoning: str = "") -> Message:
        return cls(role, (TextPart(text),), reasoning)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True)
class ModelPair:
    """A target file and, if there is one, the draft file that runs ahead of it."""

    target: Path
    draft: Path | None = None

    def without_draft(self) -> ModelPair:
        return replace(self, draft=None)


_next_conversation_id = itertools.count(1)


@dataclass
class Conversation:
    """A list of turns under a title. An empty title means: not named yet."""

    title: str = ""
    messages: list[Message] = field(default_factory=list)
    id: int = field(default_factory=lambda: next(_next_conversation_id))
