"""A model's own chat template: a program from a stranger, rendered with limits on its time, memory and reach."""

from __future__ import annotations

import functools
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.errors import PromptError

TIME_LIMIT = 2.0  # seconds of processor time, so that a busy machine does not count against the template
MAX_PROMPT_LENGTH = 16_000_000  # characters
MAX_SOURCE_LENGTH = 500_000  # characters; the longest in circulation have some 30,000
MAX_WORK = 32_000_000  # characters and bytes of lists that the steps of one rendering may make together

_MAX_NUMBER = 10_000  # bits
# A field width of four digits or more, or one that comes from an argument: "%9999d", "{:9999}", "%*d", "{:{}}".
_WIDE_FORMAT = re.compile(r"%(\([^)]*\))?[^a-zA-Z%]*(\d{4}|\*)|\{[^{}]*:[^{}]*(\d{4}|\{)")
_FORMATTING = {"format", "format_map", "strftime_now"}
_PADDING = {"batch", "center", "expandtabs", "indent", "ljust", "rjust", "tojson", "wordwrap", "zfill"}


class TemplateUnusableError(PromptError):
    """The template fails whatever the conversation is: other messages need not be tried."""


class ChatTemplate:
    """A Jinja template as tokenizers carry it. Compiled at the first use; one thread at a time."""

    def __init__(self, source: str, *, bos_text: str = "", eos_text: str = "", time_limit: float = TIME_LIMIT) -> None:
        self.source = source
        self._special_texts = {"bos_token": bos_text, "eos_token": eos_text}
        self._time_limit = time_limit
        self._environment: _BoundedEnvironment | None = None

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        variables: Mapping[str, object] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt as text. Raises PromptError, or TemplateUnusableError when no conversation could be rendered."""
        # Templates test `tools is not none` rather than `is defined`: transformers passes both, empty.
        everything: dict[str, object] = {"tools": None, "documents": None, **self._special_texts, **(variables or {})}
        everything |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        try:
            with _time_limit(self._time_limit):
                return self._compiled().render(everything)
        except _LimitReached as limit:
            raise TemplateUnusableError(f"This model's chat template {limit}.") from None
        except _RefusalError as refusal:
            raise PromptError(f"This model's chat template refuses the conversation: {_clause(refusal)}.") from None
        except PromptError:
            raise
        except Exception as error:  # templates fail in as many ways as programs do
            raise PromptError(f"This model's chat template failed: {_clause(error)}.") from error

    def _compiled(self) -> _BoundedEnvironment:
        if self._environment is None:
            if len(self.source) > MAX_SOURCE_LENGTH:
                raise TemplateUnusableError(f"This model's chat template is too long: {len(self.source)} characters.")
            environment = _BoundedEnvironment()
            try:
                environment.compile_source(self.source)
            except TemplateSyntaxError as error:
                raise TemplateUnusableError(
                    f"This model's chat template cannot be read: {_clause(error)} (line {error.lineno})."
                ) from None
            except (TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
                raise TemplateUnusableError(f"This model's chat template cannot be read: {_clause(error)}.") from None
            self._environment = environment
        return self._environment


def _clause(error: Exception) -> str:
    """The error's own words, on one line, fit to stand in a sentence."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    words = " ".join(str(error).split()).rstrip(".!") or type(error).__name__
    return words if len(words) <= 200 else words[:200] + "…"


# -- time ---------------------------------------------------------------------------------------------------------


class _LimitReached(BaseException):
    """Ends a rendering. Not an Exception, because Jinja swallows those in several places."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Ends the block by _LimitReached at the first line run too late. Works in any thread and on every system."""
    deadline = time.thread_time() + seconds
    lines = 0

    def trace(_frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        nonlocal lines
        lines += 1
        if lines % 64 == 0 and time.thread_time() > deadline:  # reading the clock costs more than a line
            raise _LimitReached(f"did not finish within {seconds:g} seconds")
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(previous)


# -- size and reach -----------------------------------------------------------------------------------------------


class _RefusalError(TemplateError):
    """The template called raise_exception."""


class _GenerationTag(Extension):
    """`{% generation %}` marks answers for training; for a prompt it is only its body."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox keeps a template away from Python; this adds that it cannot eat the memory.

    A single operation in C is out of the time limit's reach, so every operation that can make much out of little
    is charged for its result before it runs.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, loopcontrols],
            finalize=self._printable,
        )
        self._work = 0
        self.filters |= {"tojson": self._to_json, "join": self._join_filter}
        self.filters = {name: self._bounded(name, function) for name, function in self.filters.items()}
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}

    def compile_source(self, source: str) -> None:
        self._template = self.from_string(source)
        # The `~` operator compiles to a call of this name in the template's own module.
        self._template.root_render_func.__globals__["str_join"] = functools.partial(self._join, "")

    def render(self, variables: Mapping[str, object]) -> str:
        self._work = 0
        pieces = []
        length = 0
        for piece in self._template.generate(variables):
            length += len(piece)
            if length > MAX_PROMPT_LENGTH:
                raise _LimitReached("makes more text than any prompt can hold")
            pieces.append(piece)
        return "".join(pieces)

    # What the compiled template calls: operators, calls, filters, captured output, printed values.

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int) and isinstance(right, int)
        if operator == "+" and not numbers:
            self._charge(_length(left) + _length(right))
        elif operator == "*" and not numbers:
            self._charge(max(_length(left) * _whole(right), _length(right) * _whole(left)))
        elif operator == "*":
            _check_number(left.bit_length() + right.bit_length())
        elif operator == "**" and numbers:
            _check_number(left.bit_length() * right)
        elif operator == "%" and isinstance(left, str):
            self._check_call("format", [left, right])
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        # The sandbox wraps str.format, whose text is then one step further away.
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        name = getattr(function, "__name__", "")
        if isinstance(owner, str) and name == "join" and len(args) == 1:
            return self._join(owner, args[0])
        self._check_call(name, [owner, *args, *kwargs.values()])
        return self._charged(super().call(context, function, *args, **kwargs))

    def concat(self, pieces: Iterable[str]) -> str:
        return self._join("", pieces)

    def _printable(self, value: object) -> object:
        self._check_nested(value)
        return value

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)  # also copies Jinja's marks for what is passed first
        def bounded(*args: Any, **kwargs: Any) -> Any:
            self._check_call(name, [*args, *kwargs.values()])
            return self._charged(function(*args, **kwargs))

        return bounded

    def _join_filter(self, value: Iterable[Any], d: object = "", attribute: str | int | None = None) -> str:
        return self._join(str(d), value if attribute is None else map(make_attrgetter(self, attribute), value))

    def _join(self, separator: str, items: Iterable[Any]) -> str:
        texts = []
        for item in items:
            self._check_nested(item)
            texts.append(str(item))
            self._charge(len(texts[-1]) + len(separator))
        return separator.join(texts)

    def _to_json(
        self,
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """As in transformers: readable JSON, not escaped for HTML as Jinja's own filter does."""
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        return self._join("", encoder.iterencode(value))

    # What it costs.

    def _charge(self, amount: int) -> None:
        self._work += amount
        if self._work > MAX_WORK:
            raise _LimitReached("needs more memory than a prompt is worth")

    def _charged(self, result: Any) -> Any:
        self._charge(_length(result))
        return result

    def _check_call(self, name: str, values: list[Any]) -> None:
        texts = [value for value in values if isinstance(value, str)]
        if name in _FORMATTING and any(_WIDE_FORMAT.search(text) for text in texts[:1]):
            raise _LimitReached("pads text beyond measure")
        if name in _PADDING:
            self._charge(max(map(_whole, values)) * max(1, sum(map(len, texts))))
        if name == "replace" and len(texts) == 3:
            text, old, new = texts
            self._charge(text.count(old) * len(new))
        for value in values:
            self._check_nested(value)

    def _check_nested(self, value: object) -> None:
        """Lists that hold each other grow with every level when they are printed, compared or walked through."""
        if not isinstance(value, (list, tuple, dict)):
            return
        stack: list[object] = [value]
        seen = 0
        while stack:
            top = stack.pop()
            seen += _length(top)
            if seen > MAX_WORK or len(stack) > MAX_WORK // 64:
                raise _LimitReached("needs more memory than a prompt is worth")
            if isinstance(top, dict):
                stack.extend(top.values())
            elif isinstance(top, (list, tuple)):
                stack.extend(top)


def _check_number(bits: int) -> None:
    if bits > _MAX_NUMBER:
        raise _LimitReached("computes with numbers that are too large")


def _length(value: object) -> int:
    if isinstance(value, (list, tuple, dict)):
        return 8 * len(value)
    return len(value) if isinstance(value, (str, bytes)) else 0


def _whole(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def raise_exception(message: object) -> None:
    raise _RefusalError(str(message))


def strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)
