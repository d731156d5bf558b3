"""From a conversation to the token ids a model reads, such that nobody can type a control token into it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from app.chat import Message, Role
from app.engine.formats import FORMATS, PLAIN, Format
from app.engine.markup import GUARD, Literals, clean, is_markup
from app.engine.recall import Recall
from app.engine.template import ChatTemplate, TemplateUnusableError
from app.engine.text import KNOWN_REASONING_TAGS, ReasoningTags
from app.engine.trimming import first_turn_sent
from app.engine.turns import alternating, last_user, split_turns, variants
from app.errors import ContextFullError, PromptError

DEFAULT_RESERVE = 256  # tokens kept free for an answer of unknown length

_PROBE = Message.of(Role.user, "Hello")  # what turns are measured against: a format may not go without a message
_COUNTS_KEPT = 4096


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
    """`notes` are sentences for the user; `stop` are texts that end the answer because the format has no end token.

    `text` is what the tokens say, with `GUARD` in every control text that was only typed.
    """

    tokens: tuple[int, ...]
    notes: tuple[str, ...] = ()
    starts_in_reasoning: bool = False
    reasoning_tags: ReasoningTags | None = None
    dropped_messages: int = 0
    stop: tuple[str, ...] = ()
    text: str = field(default="", compare=False, repr=False)


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
        user_defined = {text for text in vocabulary.user_defined_texts if is_markup(text)}
        control = vocabulary.special_texts.keys() - vocabulary.user_defined_texts
        self._markup = Literals({*control, *user_defined, *tags})
        self._special = Literals(control | user_defined)
        markup_ids = {vocabulary.special_texts[text] for text in control | user_defined}
        self._recall = Recall(vocabulary.piece, self._special, markup_ids)
        self._counts: dict[tuple[object, ...], int] = {}
        letter = vocabulary.tokenize("a", add_special=False, parse_special=False)
        self._prefixes_space = b"".join(map(vocabulary.piece, letter)) == b" a"

    def build(
        self, messages: Sequence[Message], *, max_tokens: int | None = None, enable_thinking: bool | None = None
    ) -> Prompt:
        """The prompt for the answer to the last message, without the oldest turns if all do not fit.

        What it shares with earlier prompts and remembered answers has the same ids. Raises ContextFullError if the last
        message does not fit even alone.
        """
        sent = [message for message in messages if message.role is not Role.assistant or message.text.strip()]
        system, turns = split_turns(sent)
        if not any(message.role is Role.user and message.text.strip() for turn in turns for message in turn):
            raise PromptError("There is no message to answer.")
        variables = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        room = self._context - min(max_tokens or DEFAULT_RESERVE, self._context // 4)
        missing = 0  # tokens by which the counts were too low: answers as generated may take more than those counted
        while True:
            start = self._first_turn_sent(system, turns, room - missing, variables)
            rendering = self._render([*system, *(message for turn in turns[start:] for message in turn)], variables)
            text = self._spell(rendering)
            known, rest = self._recall.beginning_of(text)
            tokens = self._encode(rest, behind=known)
            if len(tokens) <= room or start == len(turns) - 1:
                break
            missing += len(tokens) - room
        if len(tokens) >= self._context:
            raise ContextFullError(_too_long(len(tokens), self._context, has_system=bool(system)))
        dropped = sum(map(len, turns[:start]))
        return Prompt(
            tokens=tuple(tokens),
            notes=(*rendering.notes, *([_not_sent(dropped, self._context)] if dropped else [])),
            starts_in_reasoning=self._tags is not None and rendering.text.rstrip().endswith(self._tags.opening),
            reasoning_tags=self._tags,
            dropped_messages=dropped,
            stop=rendering.stop,
            text=text,
        )

    def remember(self, prompt: Prompt, answer: Sequence[int]) -> None:
        """The tokens generated behind a prompt: a later prompt that says the same there says it in the same tokens."""
        self._recall.keep(prompt.text, prompt.tokens, answer)

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

    # -- what fits ------------------------------------------------------------------------------------------------

    def _first_turn_sent(
        self,
        system: Sequence[Message],
        turns: Sequence[Sequence[Message]],
        room: int,
        variables: Mapping[str, object],
    ) -> int:
        if len(turns) == 1:
            return 0
        alone = self._count([_PROBE], variables)
        *earlier, last = turns
        questions = [next((m for m in turn if m.role is Role.user and m.text.strip()), None) for turn in earlier]
        asked = [self._count([question], variables) - alone if question else 0 for question in questions]
        return first_turn_sent(
            whole=[*(self._count([*turn, _PROBE], variables) - alone for turn in earlier), 0],
            asked=[*asked, self._count(last, variables) - alone],
            fixed=self._count([*system, _PROBE], variables),
            room=room,
        )

    def _count(self, messages: Sequence[Message], variables: Mapping[str, object]) -> int:
        """The tokens of a prompt, counted once: a conversation asks for those of its turns again and again."""
        key = (*messages, *sorted(variables.items()))
        if key not in self._counts:
            if len(self._counts) >= _COUNTS_KEPT:
                self._counts.clear()
            self._counts[key] = len(self._encode(self._spell(self._render(messages, variables))))
        return self._counts[key]

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
        text = clean(message.text).strip()
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
        text = clean(text)
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

    def _spell(self, rendering: _Rendering) -> str:
        """The text with its messages in place of their marks, and with guards in the control texts they hold."""
        text = rendering.text
        # The template may write the start token, the tokenizer may add it: exactly one, if the vocabulary wants it. If
        # it does not, the text may still begin with it: SmolLM2 names <|im_start|> as its start token.
        while self._bos_text and text.lstrip().startswith(self._bos_text):
            text = text.lstrip().removeprefix(self._bos_text)
        if not rendering.marked:
            return text
        marks = "|".join(rendering.marked)
        return re.sub(marks, lambda mark: GUARD.join(self._special.cut(rendering.marked[mark[0]])), text)

    def _encode(self, text: str, behind: Sequence[int] = ()) -> list[int]:
        """The tokens of a text as `_spell` returns it, or of the rest of one, with those before it."""
        tokens = list(behind)
        if not tokens and self._bos is not None:
            tokens = [self._bos]
        for piece in text.split(GUARD):  # without guards, so what is read as a control token is one of the template's
            tokens += self._tokenize(piece, behind=tokens)
        return tokens

    def _tokenize(self, text: str, *, behind: Sequence[int]) -> list[int]:
        """The tokens of a part of the prompt, as they would be in the middle of it."""
        if not text:
            return []
        tokenize = self._vocabulary.tokenize
        if self._prefixes_space and behind and behind[-1] not in self._special_ids:
            # Such a vocabulary puts a space before every text: let it go before a newline that is then cut off.
            newline = tokenize("\n", add_special=False, parse_special=False)
            tokens = tokenize("\n" + text, add_special=False, parse_special=True)
            if tokens[: len(newline)] == newline:
                return tokens[len(newline) :]
        return tokenize(text, add_special=False, parse_special=True)


# -- what is in a vocabulary, and sentences -----------------------------------------------------------------------


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


def _not_sent(dropped: int, context: int) -> str:
    if dropped == 1:
        return f"The oldest message no longer fits in the context of {context} tokens and is not sent."
    return f"The oldest {dropped} messages no longer fit in the context of {context} tokens and are not sent."


def _too_long(needed: int, context: int, *, has_system: bool) -> str:
    subject = "This message and the system prompt need" if has_system else "This message needs"
    return (
        f"{subject} {needed} tokens, but the context holds {context}, the answer included. "
        "Shorten the message, or set a longer context in the settings."
    )
