"""Markdown of an answer as a document in the look of the transcript. Renders no HTML and loads no picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QRect, QRectF, Qt, QUrl
from PySide6.QtGui import (
    QFont,
    QPainterPath,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextTable,
)
from PySide6.QtWidgets import QWidget

from app.ui.chat.alignment import Alignment
from app.ui.chat.column import TEXT_LINE
from app.ui.chat.messages import SourceRun
from app.ui.chat.surface import MINIMUM_HEIGHT, SAFE_SCHEMES, Pill, Shape, TextSurface
from app.ui.theme import TEXT, Appearance

FEATURES = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
_CODE_SIZE, _CODE_LINE, _HEADING_LINE = 13, 20, 22
_PARAGRAPH_GAP, _ITEM_GAP, _HEADING_GAP = 12, 4, 20
_INDENT = 22
_CELL_PADDING = 7
_OBJECT = "\ufffc"
_FIXED_HEIGHT = QTextBlockFormat.LineHeightTypes.FixedHeight.value
_QUOTE = QTextFormat.Property.BlockQuoteLevel.value
_CODE_FENCE = QTextFormat.Property.BlockCodeFence.value
_CODE_LANGUAGE = QTextFormat.Property.BlockCodeLanguage.value
_RULE = QTextFormat.Property.BlockTrailingHorizontalRulerWidth.value
_OWN_RULE = QTextFormat.Property.UserProperty.value

Edit = tuple[int, int, QTextCharFormat]

_OPEN_MARK = re.compile(r"\n[ \t]*(?:[-*+=_#>|:`~]+|\d{1,9}[.)]?)[ \t]*$")


def settled_length(text: str) -> int:
    """How much of a text that is still being written can be shown without turning into something else.

    A last line of nothing but marks (a bullet, a number, an underline) would change the paragraph before it for a
    moment, until its own words follow.
    """
    found = _OPEN_MARK.search(text)
    return found.start() + 1 if found else len(text)


class MarkdownSurface(TextSurface):
    """One text segment of an answer. While it is open, `set_markdown` renders it again: at most a few kilobytes."""

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(appearance, parent)
        self._markdown = ""
        self._alignment = Alignment()
        self._runs: Sequence[SourceRun] = ()
        self._has_quotes = self._has_rules = self._has_tables = False
        font = appearance.font(TEXT)
        self.setFont(font)
        self.document().setDefaultFont(font)
        self.document().setIndentWidth(appearance.px(_INDENT))
        self.setAccessibleName("Answer text")

    def set_markdown(self, text: str, runs: Sequence[SourceRun] = ()) -> None:
        """Show the text, tinted by `runs` (in source positions) if there are any."""
        if text != self._markdown:
            if not text.startswith(self._markdown):
                self._alignment = Alignment()
            self._markdown = text
            self._render()
        self._runs = runs
        if runs:
            self._alignment.update(text, self.document().toRawText())
            positions = self._alignment.positions
            runs = [replace(run, start=positions[run.start], end=positions[run.end]) for run in runs]
        self.set_tints(runs)

    def _render(self) -> None:
        selection = self.textCursor()
        anchor, position = selection.anchor(), selection.position()
        document = self.document()
        document.setLayoutEnabled(False)  # lay out once, and no picture ever
        document.setMarkdown(self._markdown, FEATURES)
        document.setLayoutEnabled(True)
        cursor = QTextCursor(document)
        cursor.beginEditBlock()  # not around setMarkdown: it would hide the tables
        tables = self._style_tables()
        self._style_text()
        self._style_blocks(tables)
        cursor.endEditBlock()
        document.setIndentWidth(self._widest_marker())
        document.markContentsDirty(0, document.characterCount())
        if anchor != position and max(anchor, position) < document.characterCount():
            selection = QTextCursor(document)
            selection.setPosition(anchor)
            selection.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
            self.setTextCursor(selection)

    def _widest_marker(self) -> float:
        """Room for the longest number of a list, which Qt would cut off at the left."""
        widest, block = 0, self.document().begin()
        while block.isValid():
            if (found := block.textList()) is not None:
                widest = max(widest, self.fontMetrics().horizontalAdvance(found.itemText(block)))
            block = block.next()
        return max(self.appearance.px(_INDENT), widest + self.appearance.px(8))

    def _tables(self) -> list[QTextTable]:
        return [frame for frame in self.document().rootFrame().childFrames() if isinstance(frame, QTextTable)]

    def _style_tables(self) -> list[QTextTable]:
        """Room in the cells; the hairlines are painted."""
        tables = self._tables()
        for table in tables:
            first_cell = table.cellAt(0, 0)
            if first_cell.lastPosition() > first_cell.firstPosition():
                cursor = first_cell.firstCursorPosition()
                if cursor.block().length() == 1:  # Qt puts an empty block there behind a quotation or code
                    cursor.deleteChar()
            heavy = QTextCharFormat()
            heavy.setFontWeight(QFont.Weight.DemiBold)
            for column in range(table.columns()):  # Qt forgets the first of them in that case
                cell = table.cellAt(0, column)
                cursor = cell.firstCursorPosition()
                cursor.setPosition(cell.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
                cursor.mergeCharFormat(heavy)
            table_format = table.format().toTableFormat()
            table_format.setBorder(0)
            table_format.setCellPadding(self.appearance.px(_CELL_PADDING))
            table_format.setCellSpacing(0)
            is_last = table.lastPosition() + 2 >= self.document().characterCount()
            table_format.setTopMargin(self.appearance.px(_ITEM_GAP))
            table_format.setBottomMargin(0 if is_last else self.appearance.px(_PARAGRAPH_GAP))
            table.setFormat(table_format)
        return tables

    def _style_blocks(self, tables: list[QTextTable]) -> None:
        px = self.appearance.px
        covered = [(table.firstPosition(), table.lastPosition()) for table in tables]
        self._has_quotes, self._has_rules, self._has_tables = False, False, bool(tables)
        cursor = QTextCursor(self.document())
        block = self.document().begin()
        while block.isValid():
            fmt = block.blockFormat()
            start = block.position()
            line, above, below = TEXT_LINE, 0, _PARAGRAPH_GAP
            kind = MINIMUM_HEIGHT
            if any(first <= start <= last for first, last in covered):
                line, below = _CODE_LINE, 0
            elif any(start in (last + 1, first - 1) for first, last in covered) and block.length() == 1:
                line, below, kind = 1, 0, _FIXED_HEIGHT  # Qt keeps an empty block around a table
            elif fmt.headingLevel():
                line, above, below = _HEADING_LINE, _HEADING_GAP, 8
            elif _is_code(fmt):
                line, below = _CODE_LINE, 0 if _is_code(block.next().blockFormat()) else _PARAGRAPH_GAP
            elif block.textList() is not None:
                below = _ITEM_GAP if block.next().textList() is not None else _PARAGRAPH_GAP
            elif fmt.hasProperty(_RULE):
                fmt.clearProperty(_RULE)  # Qt would draw it in the colour of the text
                fmt.setProperty(_OWN_RULE, True)
                self._has_rules = True
                line, kind = 12, _FIXED_HEIGHT
            if level := fmt.intProperty(_QUOTE):
                self._has_quotes = True
                fmt.setLeftMargin(px(16) * level)
            fmt.setLineHeight(px(line), kind)
            fmt.setTopMargin(px(above))
            fmt.setBottomMargin(px(below))
            cursor.setPosition(start)
            cursor.setBlockFormat(fmt)
            block = block.next()

    def _style_text(self) -> None:
        """Inline code, links, headings and what stands for a picture."""
        pills: list[Pill] = []
        edits: list[Edit] = []
        pictures: list[tuple[int, QTextCharFormat]] = []
        block = self.document().begin()
        while block.isValid():
            block_format = block.blockFormat()
            in_code = _is_code(block_format)
            heading = block_format.headingLevel()
            iterator = block.begin()
            while not iterator.atEnd():
                fragment = iterator.fragment()
                fmt = fragment.charFormat()
                start, end = fragment.position(), fragment.position() + fragment.length()
                if fmt.isImageFormat():
                    pictures.append((start, fmt))
                elif change := self._text_format(fmt, heading):
                    edits.append((start, end, change))
                    if fmt.fontFixedPitch() and not in_code:
                        pills.append(Pill(start, end))
                iterator += 1
            block = block.next()
        cursor = QTextCursor(self.document())
        for start, end, change in edits:
            cursor.setPosition(start)
            cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            cursor.mergeCharFormat(change)
        self.set_pills(pills)
        has_links = any(change.isAnchor() for *_, change in edits) or bool(pictures)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if has_links else Qt.FocusPolicy.ClickFocus)
        for start, fmt in reversed(pictures):
            self._replace_picture(start, fmt)

    def _text_format(self, fmt: QTextCharFormat, heading: int) -> QTextCharFormat | None:
        theme = self.appearance.theme
        change = QTextCharFormat()
        if fmt.fontFixedPitch():
            change.setFont(self.appearance.font(_CODE_SIZE, fixed=True))
            change.setFontFixedPitch(True)
        if heading:  # the look has one size for text: headings are heavier, and lower ones softer
            change.setProperty(QTextFormat.Property.FontSizeAdjustment.value, 0)
            change.setFontWeight(QFont.Weight.DemiBold)
            change.setForeground(theme.color("text" if heading <= 2 else "soft"))
        if fmt.isAnchor():
            if _is_safe(fmt.anchorHref()):
                change.setAnchor(True)
                change.setForeground(theme.color("accent"))
            else:
                change.setAnchor(False)
                change.setAnchorHref("")
                change.setForeground(theme.color("text"))
            change.setFontUnderline(False)
        return change if change.propertyCount() else None

    def _replace_picture(self, position: int, fmt: QTextCharFormat) -> None:
        """A picture becomes its words; they lead to it if that is a web address."""
        image = fmt.toImageFormat()
        words = image.stringProperty(QTextFormat.Property.ImageAltText.value) or "picture"
        shown = QTextCharFormat()
        if _is_safe(image.name()):
            shown.setAnchor(True)
            shown.setAnchorHref(image.name())
            shown.setForeground(self.appearance.theme.color("accent"))
        cursor = QTextCursor(self.document())
        cursor.setPosition(position)
        cursor.setPosition(position + 1, QTextCursor.MoveMode.KeepAnchor)
        if cursor.selectedText() == _OBJECT:
            cursor.insertText(words, shown)

    # -- bars, rules and hairlines ----------------------------------------------------------------------------------

    def _has_block_shapes(self) -> bool:
        return self._has_quotes or self._has_rules or self._has_tables

    def _document_shapes(self) -> list[Shape]:
        """The hairlines of the tables: one under each row but the last."""
        if not self._has_tables:
            return []
        layout, padding = self.document().documentLayout(), self.appearance.px(_CELL_PADDING)
        lines: list[QRect] = []
        for table in self._tables():
            width = round(layout.frameBoundingRect(table).width())
            for row in range(1, table.rows()):
                first = table.cellAt(row, 0).firstCursorPosition().block()
                corner = layout.blockBoundingRect(first).topLeft()
                lines.append(QRect(round(corner.x()) - padding, round(corner.y()) - padding, width, 1))
        return [(lines, self.appearance.theme.color("line"))]

    def _block_shapes(self, block: QTextBlock, rect: QRectF) -> list[Shape]:
        if self._has_rules and block.blockFormat().hasProperty(_OWN_RULE):
            rule = QRect(0, round(rect.top()) + self.appearance.px(6), self.width(), 1)
            return [([rule], self.appearance.theme.color("line"))]
        level = block.blockFormat().intProperty(_QUOTE)
        if not level:
            return []
        px = self.appearance.px
        goes_on = block.next().isValid() and block.next().blockFormat().intProperty(_QUOTE)
        path = QPainterPath()
        for i in range(level):
            bar = QRectF(i * px(16), rect.top() + px(3), px(3), rect.height() - px(1))
            if goes_on:
                bar.setBottom(rect.bottom() + block.blockFormat().bottomMargin() + px(4))
            path.addRoundedRect(bar, 1.5, 1.5)
        return [(path, self.appearance.theme.color("accent", 0.45))]


def _is_code(fmt: QTextBlockFormat) -> bool:
    return fmt.nonBreakableLines() or fmt.hasProperty(_CODE_FENCE) or fmt.hasProperty(_CODE_LANGUAGE)


def _is_safe(href: str) -> bool:
    return QUrl(href).scheme().lower() in SAFE_SCHEMES
