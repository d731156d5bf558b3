"""Finds the control texts of a model in other texts, and cuts them apart where they were only typed."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Stands where a control text that somebody typed is cut apart. Half of a surrogate pair: no cleaned text holds one.
GUARD = "\ud800"

# HTML that some vocabularies hold as tokens of their own, as they hold runs of spaces: text, not markup.
_HTML = re.compile(r"</?(table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|b|i|u|sub|sup|code)>")


class Literals:
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


def is_markup(text: str) -> bool:
    """Whether a token of its own is markup, and not just a frequent text."""
    return not text.replace("▁", " ").isspace() and not _HTML.fullmatch(text)


def clean(text: str) -> str:
    """Without halves of surrogate pairs, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()
