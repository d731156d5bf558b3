"""Remembers the token ids of recent prompts and answers, so that the next prompt repeats what the cache holds.

A text has many tokenisations, and the one a model wrote is seldom the one the tokenizer would choose. A prompt that
tokenises an old answer anew differs from the cache there, and everything behind it is evaluated again.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import takewhile

from app.engine.markup import GUARD, Literals

_KEPT = 32  # exchanges: enough to go back to an earlier turn and ask otherwise


@dataclass(frozen=True)
class _Exchange:
    prompt: str
    tokens: tuple[int, ...]
    answer: tuple[int, ...]


class Recall:
    """Ids by text. In the texts, `GUARD` stands in control texts that were only typed."""

    def __init__(self, piece: Callable[[int], bytes], markup: Literals, markup_ids: AbstractSet[int]) -> None:
        self._piece = piece
        self._markup = markup
        self._markup_ids = markup_ids
        self._exchanges: deque[_Exchange] = deque(maxlen=_KEPT)

    def keep(self, prompt: str, tokens: Sequence[int], answer: Sequence[int]) -> None:
        """An exchange: the prompt as text and as tokens, and the tokens of the answer as they were generated."""
        # Control tokens stay out: which of them follow an answer is for the template to say.
        said = takewhile(lambda token: token not in self._markup_ids, answer)
        self._exchanges.append(_Exchange(prompt, tuple(tokens), tuple(said)))

    def beginning_of(self, prompt: str) -> tuple[list[int], str]:
        """The ids of as much of the prompt as is known, and the rest of its text."""
        longest: tuple[list[int], str] = ([], prompt)
        for exchange in reversed(self._exchanges):
            if prompt.startswith(exchange.prompt):
                rest = prompt[len(exchange.prompt) :]
                count, length = self._repeated(exchange.answer, rest)
                rest = rest[length:]
                if len(rest) < len(longest[1]):
                    longest = [*exchange.tokens, *exchange.answer[:count]], rest
        return longest

    def _repeated(self, answer: Sequence[int], rest: str) -> tuple[int, int]:
        """How many tokens of the answer the prompt goes on with, and how many characters of `rest` these are.

        None, unless the whole answer is there or, cut off by markup, a beginning of it: templates trim white space,
        and a stop string is not shown. Ids kept from an answer rewritten by hand would end in the middle of a word.
        """
        markup = self._markup.find(rest)
        body = rest[: markup.start()] if markup else rest
        text = body.replace(GUARD, "")
        said, ends = self._read(answer)
        if text.startswith(said):
            return len(answer), _position(body, len(said))
        if markup and said.startswith(text):
            count, end = max(((count, end) for count, end in ends if end <= len(text)), default=(0, 0))
            return count, _position(body, end)
        return 0, 0

    def _read(self, answer: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The answer as it was shown, and where in it which number of tokens ends without cutting a character."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        said = ""
        ends = []
        for count, token in enumerate(answer, start=1):
            said += decoder.decode(self._piece(token))
            if not decoder.getstate()[0]:
                ends.append((count, len(said)))
        return said + decoder.decode(b"", final=True), ends


def _position(guarded: str, characters: int) -> int:
    """Where in a text with guards the given number of characters ends that are none."""
    at = 0
    while characters:
        characters -= guarded[at] != GUARD
        at += 1
    return at
