"""Where each character of Markdown source stands in the rendered document.

Positions of a QTextDocument count UTF-16 units, Python counts characters. Source characters that vanish when rendered
get the position of what comes next, so a token of nothing but syntax covers an empty range.
"""

from __future__ import annotations

import html
import re

_BREAKS = frozenset("\u2028\u2029\ufdd0\ufdd1")  # ends of lines, blocks, cells and tables in QTextDocument.toRawText()
_SYNTAX = frozenset("*_~`\\|#>[]()!<-+:=")  # may vanish anywhere
_VANISHING = re.compile(
    r"""
    ^(?:[ \t]*(?:>|(?:[-*+]|\d{1,9}[.)]|\#{1,6})(?=[ \t])))+[ \t]*(?:\[[ xX]\][ \t]+)?  # quote, list, heading, task
    | ^[ \t|:-]*-[ \t|:-]*$                                                            # row under a table's head, rule
    | ^[ ]*(?:`{3,}|~{3,}).*$                                                          # fence inside a list
    | [ \t]+\#+[ \t]*$                                                                 # end of a heading
    | \]\((?:[^()\s]|\([^()\s]*\))*(?:[ ]+(?:"[^"\n]*"|'[^'\n]*'))?\)                  # target of a link or picture
    | \]\[[^\]\n]*\]
    """,
    re.MULTILINE | re.VERBOSE,
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{1,31});")
_REACH = 400  # source characters to look ahead when the two texts have lost each other
_NEEDLE = 4


class Alignment:
    """Walks both texts in step. `update` starts again at the last block that did not change, so a tail is cheap."""

    def __init__(self) -> None:
        self.positions: list[int] = [0]  # one for each source character, and one for the end
        self._rendered = ""
        self._checkpoints: list[tuple[int, int, int]] = []  # (source, rendered, position) at the breaks

    def update(self, source: str, rendered: str) -> None:
        """`source` must begin with what was passed before; `rendered` is toRawText() of the document."""
        # The last block may still change its meaning (a setext heading, a table): go back one more.
        known = self._checkpoints[:-1]
        while known and not self._is_unchanged(rendered, known[-1][1]):
            known.pop()
        i, j, position = known[-1] if known else (0, 0, 0)
        positions = self.positions[:i]
        vanishing = {m.start(): m.end() for m in _VANISHING.finditer(source, i)}
        while i < len(source) and j < len(rendered):
            shown = rendered[j]
            if shown in _BREAKS:
                known.append((i, j, position))
                j, position = j + 1, position + 1
                continue
            end = vanishing.get(i)
            if end is not None and not _is_literal(source, i, rendered, j):
                positions += [position] * (end - i)
                i = end
                continue
            raw = source[i]
            if raw == shown or (raw.isspace() and shown.isspace()):
                taken = 1
            elif raw == "&" and (entity := _ENTITY.match(source, i)) and html.unescape(entity[0])[:1] == shown:
                taken = len(entity[0])
            elif raw.isspace() or raw in _SYNTAX:
                positions.append(position)
                i += 1
                continue
            else:
                found = source.find(_needle(rendered, j), i, i + _REACH)
                taken = 0  # shown, but not in the source
                if found >= 0:
                    positions += [position] * (found - i)
                    i, taken = found, 1
            positions += [position] * taken
            i += taken
            j, position = j + 1, position + (2 if shown > "\uffff" else 1)
        positions += [position] * (len(source) + 1 - len(positions))
        self.positions, self._rendered, self._checkpoints = positions, rendered, known

    def _is_unchanged(self, rendered: str, end: int) -> bool:
        return rendered[: end + 1] == self._rendered[: end + 1]


def plain_positions(source: str, indent: int = 0) -> list[int]:
    """The same for text shown as it is, but for up to `indent` spaces taken off each line."""
    positions: list[int] = []
    position, column = 0, 0
    is_margin = indent > 0
    for char in source:
        positions.append(position)
        is_margin = is_margin and char == " " and column < indent
        if char == "\n":
            column, is_margin = 0, indent > 0
        else:
            column += 1
            if is_margin:
                continue
        position += 2 if char > "\uffff" else 1
    return [*positions, position]


def _needle(rendered: str, j: int) -> str:
    end = j + 1
    while end < len(rendered) and end < j + _NEEDLE and rendered[end] not in _BREAKS:
        end += 1
    return rendered[j:end]


def _is_literal(source: str, i: int, rendered: str, j: int) -> bool:
    """Does what looks like syntax stand in the rendered text, too?"""
    return source[i] not in " \t" and source[i : i + 2] == rendered[j : j + 2]
