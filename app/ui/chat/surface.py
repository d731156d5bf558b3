"""Selectable text without a frame that is as tall as its content, with rounded tints painted beneath the letters."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, QUrl, Signal
from PySide6.QtGui import (
    QColor,
    QHelpEvent,
    QImage,
    QKeyEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPalette,
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextLine,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QToolTip, QWidget

from app.engine.rounds import TokenSource
from app.ui.chat.messages import SourceRun
from app.ui.theme import Appearance

SAFE_SCHEMES = frozenset({"http", "https", "mailto"})
MINIMUM_HEIGHT = QTextBlockFormat.LineHeightTypes.MinimumHeight.value
_CORNER = (2, 1, 1)  # how far the first rows of a rounded tint are drawn in: about 3 px round
_WORD = re.compile(r"\S+")
_UNITS = re.compile(r"[\U00010000-\U0010ffff]")

Shape = tuple[QPainterPath | list[QRect], QColor]


@dataclass(frozen=True)
class Pill:
    """A stretch of the document with a rounded ground: inline code."""

    start: int
    end: int


class TextSurface(QTextBrowser):
    """The base of every text in the transcript. It does not scroll: wheel and paging are for its parents."""

    link_activated = Signal(QUrl)

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.appearance = appearance
        self._tints: list[SourceRun] = []  # in document positions
        self._tint_starts: list[int] = []
        self._pills: list[Pill] = []
        self._shapes: dict[tuple[int, float, float, float, float, str], list[Shape]] = {}
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.LinksAccessibleByMouse
            | Qt.TextInteractionFlag.LinksAccessibleByKeyboard
        )
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setOpenLinks(False)
        self.document().setDocumentMargin(0)
        self.document().setUndoRedoEnabled(False)
        self.viewport().setAutoFillBackground(False)
        palette = appearance.palette()
        palette.setColor(QPalette.ColorRole.Base, QColor(Qt.GlobalColor.transparent))
        self.setPalette(palette)
        self.anchorClicked.connect(self._on_anchor_clicked)

    def height_for(self, width: int) -> int:
        """Take this width, and say how tall the text is then."""
        if self.width() != width:
            self.resize(width, self.height())
            self._shapes.clear()
        self.document().setTextWidth(width)
        return max(1, -int(-self.document().size().height() // 1))

    def set_tints(self, runs: Sequence[SourceRun]) -> None:
        """The sources of the text, in positions of the document; none to show it plainly."""
        if not runs and not self._tints:
            return
        if not runs or not self._tints:
            self._shapes.clear()
        self._tints = list(runs)
        self._tint_starts = [run.start for run in self._tints]
        self.viewport().update()

    def set_pills(self, pills: list[Pill]) -> None:
        self._pills = pills

    @property
    def tints(self) -> Sequence[SourceRun]:
        return self._tints

    def end_of_text(self) -> QPointF:
        """Where the last letter ends: x, and the baseline."""
        block = self.document().lastBlock()
        origin = self.document().documentLayout().blockBoundingRect(block).topLeft()
        layout = block.layout()
        line = layout.lineAt(layout.lineCount() - 1)
        if not line.isValid():
            return origin
        return origin + QPointF(_cursor_x(line, line.textStart() + line.textLength()), line.y() + line.ascent())

    # -- never load, never scroll ---------------------------------------------------------------------------------

    def loadResource(self, kind: int, name: QUrl | str) -> object:
        """Nothing a model writes may make this program read a file or open a connection.

        For nothing at all Qt would look for a file of that name itself, so it gets a blank."""
        blank = QImage(1, 1, QImage.Format.Format_ARGB32)
        blank.fill(Qt.GlobalColor.transparent)
        return blank

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key
        if event.key() in (key.Key_PageUp, key.Key_PageDown, key.Key_Home, key.Key_End, key.Key_Up, key.Key_Down):
            event.ignore()
        else:
            super().keyPressEvent(event)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, 0)

    # -- links ----------------------------------------------------------------------------------------------------

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.anchorAt(event.pos()), self)  # an empty text hides it
            return True
        return super().viewportEvent(event)

    def _on_anchor_clicked(self, url: QUrl) -> None:
        if url.scheme().lower() in SAFE_SCHEMES:
            self.link_activated.emit(url)

    # -- painting -------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._tints or self._pills or self._has_block_shapes():
            painter = QPainter(self.viewport())
            offset = self.horizontalScrollBar().value()
            painter.translate(-offset, 0)
            seen = QRectF(event.rect()).translated(offset, 0)
            layout = self.document().documentLayout()
            painter.setPen(Qt.PenStyle.NoPen)
            _draw(painter, self._document_shapes())
            block = self.document().begin()
            while block.isValid():
                rect = layout.blockBoundingRect(block)
                rect.setHeight(block.layout().boundingRect().bottom())  # from the block's origin, not its first line
                if rect.bottom() >= seen.top() and rect.top() <= seen.bottom():
                    _draw(painter, self._shapes_of(block, rect))
                block = block.next()
            painter.end()
        super().paintEvent(event)

    def _has_block_shapes(self) -> bool:
        return False

    def _document_shapes(self) -> list[Shape]:
        """Shapes that belong to no single block."""
        return []

    def _block_shapes(self, block: QTextBlock, rect: QRectF) -> list[Shape]:
        """Shapes that belong to the block as a whole, such as the bar beside a quotation."""
        return []

    def _shapes_of(self, block: QTextBlock, rect: QRectF) -> list[Shape]:
        line = block.layout().lineAt(0)
        # The first line's place and width: the same words may have been a list item or a heading a moment ago.
        look = (line.x(), line.naturalTextWidth()) if line.isValid() else (0.0, 0.0)
        key = (block.position(), rect.left(), rect.top(), *look, block.text())
        shapes = self._shapes.get(key)
        if shapes is None:
            if len(self._shapes) > 2000:
                self._shapes.clear()
            shapes = self._block_shapes(block, rect) + self._pill_shapes(block, rect) + self._tint_shapes(block, rect)
            self._shapes[key] = shapes
        return shapes

    def _pill_shapes(self, block: QTextBlock, rect: QRectF) -> list[Shape]:
        start, end = block.position(), block.position() + block.length()
        path = QPainterPath()
        for pill in self._pills:
            if pill.start < end and pill.end > start:
                for r in self._line_rects(block, rect, pill.start - start, pill.end - start):
                    path.addRoundedRect(r.adjusted(-3, 0, 3, 0), 4, 4)
        return [(path, self.appearance.theme.color("own_message"))] if not path.isEmpty() else []

    def _tint_shapes(self, block: QTextBlock, rect: QRectF) -> list[Shape]:
        if not self._tints:
            return []
        theme = self.appearance.theme
        start, end = block.position(), block.position() + block.length() - 1
        words = [m.span() for m in _WORD.finditer(_utf16(block.text()))]
        tints: dict[str, list[QRect]] = {}
        colors: dict[str, QColor] = {}
        underline: list[QRect] = []
        for run in self._tints[max(0, bisect_right(self._tint_starts, start) - 1) :]:
            if run.start >= end:
                break
            if run.source is TokenSource.plain:
                continue  # the ground itself: what the target wrote alone needs no mark
            token = theme.source_token(run.source, run.drafter)
            colors[token] = theme.source_tint(run.source, run.drafter)
            for word_start, word_end in words:
                first, last = max(word_start, run.start - start), min(word_end, run.end - start)
                if first >= last:
                    continue
                left, right = int(first == word_start), int(last == word_end)
                for r in self._line_rects(block, rect, first, last):
                    x1, x2 = round(r.left()) - left, round(r.right()) + right
                    tints.setdefault(token, []).extend(_rounded(x1, round(r.top()), x2, round(r.bottom())))
                    if run.source is TokenSource.recovered:
                        underline.append(QRect(x1, round(r.bottom()) - 2, x2 - x1, 2))
        shapes: list[Shape] = [(rects, colors[token]) for token, rects in tints.items()]
        if underline:
            shapes.append((underline, theme.color("recovered")))
        return shapes

    def _line_rects(self, block: QTextBlock, rect: QRectF, first: int, last: int) -> list[QRectF]:
        """Rectangles around block text [first, last), one a line, as high as the letters."""
        layout = block.layout()
        rects: list[QRectF] = []
        pad = self.appearance.px(2)
        line = layout.lineForTextPosition(max(0, first))
        while line.isValid() and line.textStart() < last:
            start, end = max(first, line.textStart()), min(last, line.textStart() + line.textLength())
            if start < end:
                x1, x2 = sorted((_cursor_x(line, start), _cursor_x(line, end)))
                height = self.fontMetrics().height() + pad
                top = line.y() + line.ascent() - self.fontMetrics().ascent() - pad / 2
                rects.append(QRectF(rect.left() + x1, rect.top() + top, x2 - x1, height))
            next_line = line.lineNumber() + 1
            if next_line >= layout.lineCount():
                break
            line = layout.lineAt(next_line)
        return rects


class PlainSurface(TextSurface):
    """Text shown as it is. Growing text is appended, so that a long one costs no more than a short one."""

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(appearance, parent)
        self._text = ""
        self._line_height = 0

    def set_style(self, size: int, line_height: int, token: str = "text", *, fixed: bool = False) -> None:
        font = self.appearance.font(size, fixed=fixed)
        self.setFont(font)
        self.document().setDefaultFont(font)
        self._line_height = self.appearance.px(line_height)
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.Text, self.appearance.theme.color(token))
        self.setPalette(palette)

    def set_text(self, text: str) -> None:
        if text == self._text:
            return
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        if self._text and text.startswith(self._text):
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(text[len(self._text) :])
        else:
            cursor.select(QTextCursor.SelectionType.Document)
            cursor.removeSelectedText()
            block_format = cursor.blockFormat()
            block_format.setLineHeight(self._line_height, MINIMUM_HEIGHT)
            cursor.setBlockFormat(block_format)
            cursor.insertText(text)
            self.setTextCursor(QTextCursor(self.document()))  # at the end it would drag the view along
        cursor.endEditBlock()
        self._text = text


def _rounded(x1: int, y1: int, x2: int, y2: int) -> list[QRect]:
    """A rounded rectangle as rows of pixels. Behind text, at this opacity, smooth corners look no better,
    and hundreds of them took 10 ms a frame."""
    rows = len(_CORNER)
    if x2 - x1 <= 2 * _CORNER[0] or y2 - y1 <= 2 * rows:
        return [QRect(x1, y1, x2 - x1, y2 - y1)]
    rects = [QRect(x1, y1 + rows, x2 - x1, y2 - y1 - 2 * rows)]
    for row, inset in enumerate(_CORNER):
        rects += [QRect(x1 + inset, y, x2 - x1 - 2 * inset, 1) for y in (y1 + row, y2 - 1 - row)]
    return rects


def _draw(painter: QPainter, shapes: list[Shape]) -> None:
    for shape, color in shapes:
        painter.setBrush(color)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, isinstance(shape, QPainterPath))
        if isinstance(shape, QPainterPath):
            painter.drawPath(shape)
        else:
            painter.drawRects(shape)


def _cursor_x(line: QTextLine, position: int) -> float:
    x: float = line.cursorToX(position)[0]  # type: ignore[index]
    return x


def _utf16(text: str) -> str:
    """The text with two letters for each character beyond the basic plane, so that indexes are Qt's."""
    return _UNITS.sub("xx", text)
