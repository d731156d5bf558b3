"""From a conversation to the token ids a model reads, such that nobody can type a control token into it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from app.chat import Message, Role
from app.engine.formats import FORMATS, PLAIN, Format
from app.engine.template import ChatTemplate, TemplateUnusableError
from app.engine.text import KNOWN_REASONING_TAGS, ReasoningTags
from app.engine.turns import alternating, last_user, split_turns, variants
from app.errors import ContextFullError, PromptError

DEFAULT_RESERVE = 256  # tokens kept free for an answer of unknown length

# HTML that some vocabularies hold as tokens of their own, as they hold runs of spaces: text, not markup.
_HTML = re.compile(r"</?(table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|b|i|u|sub|sup|code)>")


class Vocabulary(Protocol):
    """What a prompt needs to know of a model's tokens."""

    @property
    def bos(self) -> int | None: ...
    @property
    def eos(self) -> int | None: ...
    @property
    def add_bos(self) -> bool: ...
    @property
    def n_tokens(self) -> int: ...
    @property
    def special_texts(self) -> Mapping[str, int]: ...
    @property
    def user_defined_texts(self) -> frozenset[str]:
        """Those of `special_texts` that are matched even with parse_special=False."""
        ...

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...
    def piece(self, token: int, *, special: bool = False) -> bytes: ...
    def text_of(self, token: int) -> str: ...
    def is_end(self, token: int) -> bool: ...


@dataclass(frozen=True)
class Prompt:
    """`notes` are sentences for the user; `stop` are texts that end the answer because the format has no end token."""

    tokens: tuple[int, ...]
    notes: tuple[str, ...] = ()
    starts_in_reasoning: bool = False
    reasoning_tags: ReasoningTags | None = None
    dropped_messages: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Rendering:
    """A prompt as text, in which a mark stands for every message that could be taken for markup."""

    text: str
    marked: Mapping[str, str]  # the message by its mark
    notes: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


class PromptBuilder:
    """Builds the prompts of one model. `template_source` is the template in its file, if there is one."""

    def __init__(self, vocabulary: Vocabulary, template_source: str | None, architecture: str, *, context: int) -> None:
        self._vocabulary = vocabulary
        self._architecture = architecture
        self._context = context
        self._bos = vocabulary.bos if vocabulary.add_bos else None
        self._bos_text = "" if self._bos is None else vocabulary.text_of(self._bos)
        self._eos_text = "" if vocabulary.eos is None else vocabulary.text_of(vocabulary.eos)
        self._own = self._template(template_source) if template_source and template_source.strip() else None
        self._own_problem = "" if self._own else f"This model file ({architecture}) has no chat template."
        self._tags = _reasoning_tags(template_source or "", vocabulary, architecture)
        self._special_ids = frozenset(vocabulary.special_texts.values())
        tags = {text for known in KNOWN_REASONING_TAGS for text in (known.opening, known.closing)}
        user_defined = {text for text in vocabulary.user_defined_texts if _is_markup(text)}
        control = vocabulary.special_texts.keys() - vocabulary.user_defined_texts
        self._markup = _Literals({*control, *user_defined, *tags})
        self._user_defined = _Literals(user_defined)
        letter = vocabulary.tokenize("a", add_special=False, parse_special=False)
        self._prefixes_space = b"".join(map(vocabulary.piece, letter)) == b" a"

    def build(
        self, messages: Sequence[Message], *, max_tokens: int | None = None, enable_thinking: bool | None = None
    ) -> Prompt:
        """The prompt for the answer to the last message, without the oldest turns if all do not fit.

        Raises ContextFullError if the last message does not fit even alone.
        """
        sent = [message for message in messages if message.role is not Role.assistant or message.text.strip()]
        system, turns = split_turns(sent)
        if not any(message.role is Role.user and message.text.strip() for turn in turns for message in turn):
            raise PromptError("There is no message to answer.")
        variables = {} if enable_thinking is None else {"enable_thinking": enable_thinking}

        def without_oldest(count: int) -> tuple[_Rendering, list[int]]:
            rendering = self._render([*system, *(message for turn in turns[count:] for message in turn)], variables)
            return rendering, self._encode(rendering)

        room = self._context - min(max_tokens or DEFAULT_RESERVE, self._context // 4)
        dropped_turns = 0
        rendering, tokens = without_oldest(0)
        needed = len(tokens)
        if needed > room:
            fits_not, dropped_turns = 0, len(turns) - 1
            rendering, tokens = without_oldest(dropped_turns)
            if len(tokens) >= self._context:
                raise ContextFullError(_too_long(len(tokens), self._context, has_system=bool(system)))
            while dropped_turns - fits_not > 1:
                middle = (fits_not + dropped_turns) // 2
                attempt = without_oldest(middle)
                if len(attempt[1]) <= room:
                    dropped_turns, (rendering, tokens) = middle, attempt
                else:
                    fits_not = middle
        dropped = sum(map(len, turns[:dropped_turns]))
        notes = (_not_sent(dropped, needed, self._context),) if dropped else ()
        return Prompt(
            tokens=tuple(tokens),
            notes=(*rendering.notes, *notes),
            starts_in_reasoning=self._tags is not None and rendering.text.rstrip().endswith(self._tags.opening),
            reasoning_tags=self._tags,
            dropped_messages=dropped,
            stop=rendering.stop,
        )

    def turn_end_tokens(self) -> tuple[int, ...]:
        """End-of-turn tokens that the format uses and the model's file does not name as such."""
        mark = _new_mark()
        exchange = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": mark}]
        text = ""
        if self._own is not None:
            try:
                text = self._own.render(exchange, add_generation_prompt=False)
            except TemplateUnusableError as error:
                self._give_up(error)
            except PromptError:
                pass  # the format used in its place is asked instead
        if mark not in text:
            text = self._template(self._fallback().source).render(exchange, add_generation_prompt=False)
        token = self._vocabulary.special_texts.get(text.rpartition(mark)[2].strip())
        if token is None or self._vocabulary.is_end(token):
            return ()
        # gpt-oss ends its reasoning with the token that ends a turn in its history.
        if self._tags is not None and self._tags.closing.startswith(self._vocabulary.text_of(token)):
            return ()
        return (token,)

    # -- from messages to text ------------------------------------------------------------------------------------

    def _template(self, source: str) -> ChatTemplate:
        return ChatTemplate(source, bos_text=self._bos_text, eos_text=self._eos_text)

    def _render(self, messages: Sequence[Message], variables: Mapping[str, object]) -> _Rendering:
        problem: object = self._own_problem
        if self._own is not None:
            try:
                return self._render_own(self._own, messages, variables)
            except TemplateUnusableError as error:
                self._give_up(error)
                problem = error
            except PromptError as error:
                problem = error
        fallback = self._fallback()
        rendering = self._render_with(self._template(fallback.source), alternating(messages), variables)
        note = f"{problem} {fallback.explanation}"
        return replace(rendering, notes=(note, *rendering.notes), stop=fallback.stop)

    def _give_up(self, error: TemplateUnusableError) -> None:
        """The template is not tried again: it may have taken seconds."""
        self._own, self._own_problem = None, str(error)

    def _fallback(self) -> Format:
        known = self._vocabulary.special_texts
        return next((f for f in FORMATS if all(marker in known for marker in f.markers)), PLAIN)

    def _render_own(
        self, template: ChatTemplate, messages: Sequence[Message], variables: Mapping[str, object]
    ) -> _Rendering:
        """The first of several ways to put the conversation that the template accepts and does not cut short."""
        problem = PromptError("This model's chat template leaves messages out.")
        for variant, note in variants(messages):
            for in_parts in (False, True):  # some templates know content only as a list of parts
                try:
                    rendering = self._render_with(template, variant, variables, in_parts=in_parts)
                except TemplateUnusableError:
                    raise
                except PromptError as error:
                    problem = error
                    break
                if self._shows(rendering, last_user(variant)):
                    if all(self._shows(rendering, m) for m in variant if m.role is Role.system):
                        return replace(rendering, notes=(*note, *rendering.notes))
                    break
        raise problem

    def _shows(self, rendering: _Rendering, message: Message) -> bool:
        """Whether the message, or at least its first line, went into the prompt."""
        text = _clean(message.text).strip()
        lines = (text.partition("\n")[0].rstrip(), self._broken(text).partition("\n")[0].rstrip())
        return text in rendering.marked.values() or any(line in rendering.text for line in lines)

    def _render_with(
        self,
        template: ChatTemplate,
        messages: Sequence[Message],
        variables: Mapping[str, object],
        *,
        in_parts: bool = False,
    ) -> _Rendering:
        """Renders with a mark for each message that holds markup, because the template's own markup must stay apart.

        A message whose mark the template loses, repeats or changes goes in as text, its markup visibly broken.
        """
        broken: set[int] = set()
        while True:
            marks = [_new_mark() for _ in messages]
            marked: dict[str, str] = {}
            entries: list[dict[str, object]] = []
            for index, message in enumerate(messages):
                content = self._protect(message.text, None if index in broken else marks[index], marked)
                entry: dict[str, object] = {"role": message.role.value, "content": content}
                if in_parts:
                    entry["content"] = [{"type": "text", "text": content}]
                if message.reasoning and "reasoning_content" in template.source:
                    entry["reasoning_content"] = self._protect(message.reasoning, _new_mark(), marked)
                entries.append(entry)
            text = template.render(entries, variables)
            misplaced = {i for i, mark in enumerate(marks) if mark in marked and text.count(mark) != 1}
            if not misplaced:
                break
            broken |= misplaced
        note = "A message holds this model's own markup; it was broken up with spaces to stay text."
        return _Rendering(text, marked, (note,) if broken else ())

    def _protect(self, text: str, mark: str | None, marked: dict[str, str]) -> str:
        """What the template sees of a text: if it holds markup, the mark in its place, or the markup broken up."""
        text = _clean(text)
        if not self._markup.find(text):
            return text
        if mark is None:
            return self._broken(text)
        core = text.strip()  # the spaces around it are left to the template, which may trim them
        marked[mark] = core
        return text.replace(core, mark)

    def _broken(self, text: str) -> str:
        return " ".join(self._markup.cut(text))

    # -- from text to tokens --------------------------------------------------------------------------------------

    def _encode(self, rendering: _Rendering) -> list[int]:
        text = rendering.text
        # The template may write the start token, the tokenizer may add it: exactly one, if the vocabulary wants it. If
        # it does not, the text may still begin with it: SmolLM2 names <|im_start|> as its start token.
        while self._bos_text and text.lstrip().startswith(self._bos_text):
            text = text.lstrip().removeprefix(self._bos_text)
        tokens = [] if self._bos is None else [self._bos]
        marks = "|".join(rendering.marked)
        for part in re.split(f"({marks})", text) if marks else [text]:
            if part in rendering.marked:
                for piece in self._user_defined.cut(rendering.marked[part]):
                    tokens += self._tokenize(piece, behind=tokens, parse_special=False)
            else:
                tokens += self._tokenize(part, behind=tokens, parse_special=True)
        return tokens

    def _tokenize(self, text: str, *, behind: Sequence[int], parse_special: bool) -> list[int]:
        """The tokens of a part of the prompt, as they would be in the middle of it."""
        if not text:
            return []
        tokenize = self._vocabulary.tokenize
        if self._prefixes_space and behind and behind[-1] not in self._special_ids:
            # Such a vocabulary puts a space before every text: let it go before a newline that is then cut off.
            newline = tokenize("\n", add_special=False, parse_special=False)
            tokens = tokenize("\n" + text, add_special=False, parse_special=parse_special)
            if tokens[: len(newline)] == newline:
                return tokens[len(newline) :]
        return tokenize(text, add_special=False, parse_special=parse_special)


class _Literals:
    """Finds any of many texts. A vocabulary may have thousands of them, too many for one regular expression."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(text for text in texts if len(text) > 1)
        self._lengths = sorted({len(text) for text in self._texts}, reverse=True)
        firsts = re.escape("".join(sorted({text[0] for text in self._texts})))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def find(self, text: str, start: int = 0) -> re.Match[str] | None:
        """The match of the first character of the first text found."""
        for match in self._first.finditer(text, start) if self._first else ():
            at = match.start()
            if any(text[at : at + length] in self._texts for length in self._lengths):
                return match
        return None

    def cut(self, text: str) -> list[str]:
        """The text in pieces of which none holds any of the texts."""
        pieces = []
        start = 0
        while match := self.find(text, start):
            pieces.append(text[start : match.end()])
            start = match.end()
        return [*pieces, text[start:]]


# -- what is in a vocabulary, and sentences -----------------------------------------------------------------------


def _is_markup(text: str) -> bool:
    return not text.replace("▁", " ").isspace() and not _HTML.fullmatch(text)


def _reasoning_tags(source: str, vocabulary: Vocabulary, architecture: str) -> ReasoningTags | None:
    for tags in KNOWN_REASONING_TAGS:
        if tags.opening in source or tags.closing in source:
            return tags
    for tags in KNOWN_REASONING_TAGS:
        if tags.opening in vocabulary.special_texts:
            return tags
    return KNOWN_REASONING_TAGS[-1] if architecture == "gpt-oss" else None


def _new_mark() -> str:
    return f"mark{secrets.token_hex(12)}end"


def _clean(text: str) -> str:
    """Without halves of surrogate pairs, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()


def _not_sent(dropped: int, needed: int, context: int) -> str:
    return (
        f"Earlier messages were not sent ({dropped}): the whole conversation needs {needed} tokens, "
        f"the context holds {context}."
    )


def _too_long(needed: int, context: int, *, has_system: bool) -> str:
    subject = "This message and the system prompt need" if has_system else "This message needs"
    return (
        f"{subject} {needed} tokens, but the context holds {context}. "
        "Shorten the message, or set a longer context in the settings."
    )
