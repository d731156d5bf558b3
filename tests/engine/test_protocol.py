"""Every message survives the wire, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from typing import Any, Literal

import pytest

from app.chat import Message, Role
from app.engine.protocol import Command, Fault, Generate, GenerationRequest, ProtocolError, WorkerEvent, decode, encode
from app.errors import ContextFullError, SlipstreamError

MESSAGES = [*typing.get_args(Command), *typing.get_args(WorkerEvent)]


def example(kind: Any) -> Any:
    """A value of a type, with every field filled and no default left."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: example(hints[f.name]) for f in dataclasses.fields(kind)})  # type: ignore[operator]
    if hasattr(kind, "_fields"):  # a named tuple
        return kind(*(example(hint) for hint in typing.get_type_hints(kind).values()))
    if origin is tuple:
        return (example(args[0]), example(args[0]))
    if origin is dict:
        return {example(args[0]): example(args[1])}
    if kind is Any:
        return {"any": [1, "thing"]}
    if origin in (typing.Union, types.UnionType):
        return example(args[0])
    if origin is Literal:
        return args[-1]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[-1]
    return {str: "é\n“text”\u2028", int: 7, float: 0.25, bool: True}[kind]


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_message_survives_the_wire(kind: type) -> None:
    message = example(kind)
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


def test_messages_keep_text_of_any_kind() -> None:
    text = "a\x00b \ud800".encode("utf-8", "replace").decode() + "\U0001f525\r\n\t\x7f"
    message = Generate(1, GenerationRequest((Message.of(Role.user, text),)))
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"hello\n",
        b"[]\n",
        b'{"type":"Nonsense","body":{}}\n',
        b'{"type":"LoadPair","body":{"target":3}}\n',
        b"\xff\xfe\n",
    ],
)
def test_other_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


def test_a_fault_comes_back_as_the_error_it_was() -> None:
    error = Fault.of(ContextFullError("too long.")).to_error()
    assert type(error) is ContextFullError
    assert str(error) == "too long."
    assert type(Fault("OfAnotherVersion", "x").to_error()) is SlipstreamError
