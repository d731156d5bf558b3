"""The turns of a conversation: taken apart to drop old ones, and put otherwise for templates that are strict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.chat import Message, Role

_PLACEHOLDER = "…"


def variants(messages: Sequence[Message]) -> Iterator[tuple[Sequence[Message], tuple[str, ...]]]:
    """The conversation as it is, then repaired for templates that are strict, each with a note that says how."""
    yield messages, ()
    folded = "This model's chat template has no place for a system prompt; it was put before the first message."
    repaired = "This model's chat template wants user and assistant in turns, beginning with the user; "
    repaired += "messages were joined or filled in to fit."
    has_system = any(message.role is Role.system for message in messages)
    turns = alternating(messages)
    if has_system:
        yield _with_system_in_first_user(messages), (folded,)
    if turns != list(messages):
        yield turns, (repaired,)
        if has_system:
            yield _with_system_in_first_user(turns), (folded, repaired)


def alternating(messages: Sequence[Message]) -> list[Message]:
    result: list[Message] = []
    for message in messages:
        if not message.text.strip():
            continue
        is_leading_system = message.role is Role.system and all(m.role is Role.system for m in result)
        role = Role.user if message.role is Role.system and not is_leading_system else message.role
        if result and result[-1].role is role:
            result[-1] = Message.of(role, f"{result[-1].text}\n\n{message.text}", message.reasoning)
        else:
            if role is Role.assistant and all(m.role is Role.system for m in result):
                result.append(Message.of(Role.user, _PLACEHOLDER))
            result.append(replace(message, role=role))
    return result


def _with_system_in_first_user(messages: Sequence[Message]) -> list[Message]:
    system = "\n\n".join(m.text for m in messages if m.role is Role.system and m.text.strip())
    result = [message for message in messages if message.role is not Role.system]
    first = next((i for i, message in enumerate(result) if message.role is Role.user), None)
    if system and first is not None:
        result[first] = Message.of(Role.user, f"{system}\n\n{result[first].text}")
    return result


def split_turns(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """The system prompt, which always stays, and the turns: a user message, not blank, with all that follows it."""
    system: list[Message] = []
    turns: list[list[Message]] = []
    for message in messages:
        if message.role is Role.system and not turns:
            if message.text.strip():
                system.append(message)
        elif (message.role is Role.user and message.text.strip()) or not turns:
            turns.append([message])
        else:
            turns[-1].append(message)
    return system, turns


def last_user(messages: Sequence[Message]) -> Message:
    return next(message for message in reversed(messages) if message.role is Role.user)
