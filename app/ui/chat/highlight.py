"""Colours code a few milliseconds at a time, so that a long block never holds up the window."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pygments.lexers
import pygments.token
from pygments.lexer import Lexer
from pygments.util import ClassNotFound
from PySide6.QtCore import QObject, QTimer
from PySide6.QtGui import QColor, QTextBlock, QTextCharFormat, QTextDocument, QTextLayout

from app.ui.theme import Appearance, Theme

_SLICE_S = 0.004
_LONGEST = 60_000  # characters; more is shown plainly
_LIKE_TEXT = 0.3  # how far a colour made for shapes moves to the text colour, to be readable as text

T = pygments.token.Token
_KINDS: tuple[tuple[pygments.token._TokenType, str, bool], ...] = (  # first match wins; bool: italic
    (T.Comment.Preproc, "bonus", False),
    (T.Comment, "soft", True),
    (T.Literal.String.Doc, "soft", False),
    (T.Literal.String, "draft", False),
    (T.Literal.Number, "recovered", False),
    (T.Keyword.Constant, "recovered", False),
    (T.Keyword, "lookup", False),
    (T.Operator.Word, "lookup", False),
    (T.Name.Tag, "lookup", False),
    (T.Name.Decorator, "bonus", False),
    (T.Name.Attribute, "bonus", False),
    (T.Name.Builtin, "accent", False),
    (T.Name.Class, "accent", False),
    (T.Generic.Deleted, "error", False),
    (T.Generic.Inserted, "draft", False),
)


class Highlighter(QObject):
    """Formats lie over the text of the document, they do not change it."""

    def __init__(self, document: QTextDocument, language: str, appearance: Appearance, parent: QObject) -> None:
        super().__init__(parent)
        self._document = document
        self._language = language
        self._theme = appearance.theme
        self._formats: dict[pygments.token._TokenType, QTextCharFormat | None] = {}
        self._work: Iterator[None] | None = None
        self._timer = QTimer(self)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._go_on)

    @property
    def is_working(self) -> bool:
        return self._work is not None

    def start(self, text: str) -> None:
        """Colour the document, which shows `text`."""
        lexer = find_lexer(self._language) if len(text) <= _LONGEST else None
        if lexer is not None:
            self._work = self._colour(lexer, text)
            self._timer.start()

    def _go_on(self) -> None:
        end = time.perf_counter() + _SLICE_S
        while self._work is not None and time.perf_counter() < end:
            try:
                next(self._work)
            except StopIteration:
                self._work = None
                self._timer.stop()

    def _colour(self, lexer: Lexer, text: str) -> Iterator[None]:
        """One step a token. A line gets its formats when the lexer has left it."""
        block = self._document.begin()
        ranges: list[QTextLayout.FormatRange] = []
        column = 0  # in UTF-16 units
        for _, kind, value in lexer.get_tokens_unprocessed(text):
            fmt = self._format(kind)
            for i, part in enumerate(value.split("\n")):
                if i:
                    self._apply(block, ranges)
                    block, ranges, column = block.next(), [], 0
                length = len(part.encode("utf-16-le")) // 2
                piece = QTextLayout.FormatRange()
                piece.start, piece.length = column, length  # type: ignore[attr-defined]
                piece.format = fmt or QTextCharFormat()  # type: ignore[attr-defined]
                ranges.append(piece)
                column += length
            yield
        self._apply(block, ranges)

    def _apply(self, block: QTextBlock, ranges: list[QTextLayout.FormatRange]) -> None:
        if block.isValid():
            block.layout().setFormats(ranges)
            self._document.markContentsDirty(block.position(), block.length())

    def _format(self, kind: pygments.token._TokenType) -> QTextCharFormat | None:
        if kind not in self._formats:
            self._formats[kind] = next(
                (_make(self._theme, token, is_italic) for base, token, is_italic in _KINDS if kind in base), None
            )
        return self._formats[kind]


def find_lexer(language: str) -> Lexer | None:
    if not language:
        return None
    try:
        return pygments.lexers.get_lexer_by_name(language)
    except ClassNotFound:
        return None


def code_color(theme: Theme, token: str) -> QColor:
    """A colour of the theme that reads as text on its surface."""
    color, text = theme.color(token), theme.color("text")
    if token in ("accent", "soft", "error"):
        return color
    mixed = QColor()
    mixed.setRgbF(
        color.redF() + (text.redF() - color.redF()) * _LIKE_TEXT,
        color.greenF() + (text.greenF() - color.greenF()) * _LIKE_TEXT,
        color.blueF() + (text.blueF() - color.blueF()) * _LIKE_TEXT,
    )
    return mixed


def _make(theme: Theme, token: str, is_italic: bool) -> QTextCharFormat:
    fmt = QTextCharFormat()
    fmt.setForeground(code_color(theme, token))
    fmt.setFontItalic(is_italic)
    return fmt
