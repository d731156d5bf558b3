"""The widgets of a message: what the user said, what was answered, and notes between them."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, QUrl, Signal
from PySide6.QtGui import QEnterEvent, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QLabel, QWidget

from app.ui.chat.buttons import CopyButton
from app.ui.chat.code import CodeBlock
from app.ui.chat.column import TEXT_LINE
from app.ui.chat.markdown import MarkdownSurface, settled_length
from app.ui.chat.messages import Answer, SourceRun
from app.ui.chat.reasoning import ReasoningBlock
from app.ui.chat.surface import PlainSurface
from app.ui.theme import LABEL, TEXT, Appearance

_BUBBLE_WIDTH, _BUBBLE_RADIUS = 430, 12
_GAP = 12  # between the parts of an answer
_FOOTER = 28


class MessageView(QWidget):
    """A message in the column. `place` lays it out; whoever owns it asks again when it says its height changed."""

    height_changed = Signal()
    link_activated = Signal(QUrl)

    def __init__(self, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(parent)
        self.appearance = appearance

    def place(self, width: int) -> int:
        """Lay out at this width; the height that takes."""
        raise NotImplementedError

    def set_show_sources(self, shown: bool) -> None:
        """Only answers have sources."""

    def _faint_label(self, text: str) -> QLabel:
        label = QLabel(text, self)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setWordWrap(True)
        label.setFont(self.appearance.font(LABEL, tabular=True))
        palette = self.appearance.palette()
        palette.setColor(QPalette.ColorRole.Text, self.appearance.theme.color("faint"))  # of labels in a viewport
        label.setPalette(palette)
        return label


class UserView(MessageView):
    """A bubble on the right, with the text as it was typed."""

    def __init__(self, text: str, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(appearance, parent)
        self.setAccessibleName("Your message")
        self.surface = PlainSurface(appearance, self)
        self.surface.set_style(TEXT, TEXT_LINE)
        self.surface.set_text(text)
        self.surface.setAccessibleName("Your message")
        self._bubble = QRectF()

    def place(self, width: int) -> int:
        px = self.appearance.px
        padding = px(16)
        widest = min(width, px(_BUBBLE_WIDTH)) - 2 * padding
        document = self.surface.document()
        document.setTextWidth(-1)
        text_width = max(1, min(widest, -int(-document.idealWidth() // 1) + 1))
        height = self.surface.height_for(text_width)
        left = width - text_width - padding
        self.surface.setGeometry(left, px(5), text_width, height)  # a line has its spare room on top
        self._bubble = QRectF(left - padding, 0, text_width + 2 * padding, height + px(16))
        return round(self._bubble.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.appearance.theme.color("own_message"))
        radius = self.appearance.px(_BUBBLE_RADIUS)
        painter.drawRoundedRect(self._bubble, radius, radius)


class NoteView(MessageView):
    """A small line between messages."""

    def __init__(self, text: str, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(appearance, parent)
        self._label = self._faint_label(text)
        self._label.setAlignment(Qt.AlignmentFlag.AlignCenter)

    def place(self, width: int) -> int:
        height = self._label.heightForWidth(width)
        self._label.setGeometry(0, 0, width, height)
        return height


class AnswerView(MessageView):
    """Reasoning, then text and code in turn, then the footer. Only the last segment of an open answer changes."""

    def __init__(self, answer: Answer, show_sources: bool, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(appearance, parent)
        self.answer = answer
        self.parts: list[MarkdownSurface | CodeBlock] = []
        self.reasoning: ReasoningBlock | None = None
        self._heights: list[int] = []  # of the parts, 0 where not known
        self._width = 0
        self._complete = 0  # parts that will not change any more
        self._show_sources = show_sources
        self._caret = QPointF()
        self._footer = self._faint_label("")
        self._notice = self._faint_label("")
        self.copy_button = CopyButton("Copy", "Copy answer", appearance, self, quiet=True)
        self.copy_button.clicked.connect(lambda: self.copy_button.copy(self.answer.text))
        self.setAccessibleName("Answer")
        self.refresh()

    def refresh(self) -> None:
        """Show what the answer has become."""
        answer = self.answer
        if answer.reasoning and self.reasoning is None:
            self.reasoning = ReasoningBlock(answer, self.appearance, self)
            self.reasoning.height_changed.connect(self._on_reasoning_toggled)
            self.reasoning.setVisible(True)
        if self.reasoning:
            self.reasoning.refresh(self._show_sources)
        while len(self.parts) > len(answer.segments):  # an unfinished line that turned out to be a fence
            self._drop_last_part()
        self._complete = min(self._complete, max(0, len(self.parts) - 1))
        for i in range(self._complete, len(answer.segments)):
            self._show_segment(i)
        self._complete = len(answer.segments) if not answer.is_open else max(0, len(answer.segments) - 1)
        self._footer.setText(answer.footer)
        self._notice.setText(answer.notice)
        self._footer.setVisible(not answer.is_open)
        self._notice.setVisible(bool(answer.notice))
        self.copy_button.setVisible(not answer.is_open and bool(answer.text))

    def set_show_sources(self, shown: bool) -> None:
        self._show_sources = shown
        self._complete = 0
        self.refresh()

    def _show_segment(self, i: int) -> None:
        answer, segment = self.answer, self.answer.segments[i]
        if i < len(self.parts) and isinstance(self.parts[i], CodeBlock) is not segment.is_code:
            while len(self.parts) > i:
                self._drop_last_part()
        if i == len(self.parts):
            self.parts.append(self._make_part(segment.is_code))
            self._heights.append(0)
        end = segment.end
        if answer.is_open and not segment.is_code and i == len(answer.segments) - 1:
            end = segment.start + settled_length(answer.text[segment.start : segment.end])
        runs: Sequence[SourceRun] = answer.text_runs.between(segment.start, end) if self._show_sources else ()
        part = self.parts[i]
        if isinstance(part, CodeBlock):
            part.show_segment(segment, answer.text, runs)
        else:
            part.set_markdown(answer.text[segment.start : end], runs)
        self._heights[i] = 0

    def _make_part(self, is_code: bool) -> MarkdownSurface | CodeBlock:
        if is_code:
            block = CodeBlock(self.appearance, self)
            block.height_changed.connect(lambda: self._on_part_changed(block))
            block.setVisible(True)
            return block
        text = MarkdownSurface(self.appearance, self)
        text.link_activated.connect(self.link_activated)
        text.setVisible(True)
        return text

    def _drop_last_part(self) -> None:
        self._heights.pop()
        part = self.parts.pop()
        part.hide()
        part.deleteLater()

    def place(self, width: int) -> int:
        px = self.appearance.px
        if width != self._width:
            self._width = width
            self._heights = [0] * len(self.parts)
        y = 0
        if self.reasoning:
            height = self.reasoning.height_for(width)
            self.reasoning.setGeometry(0, y, width, height)
            y += height + px(8)
        for i, part in enumerate(self.parts):
            if i:
                y += px(_GAP)
            if not self._heights[i]:
                self._heights[i] = part.height_for(width)
            part.setGeometry(0, y, width, self._heights[i])
            y += self._heights[i]
        if self.answer.is_open:
            y = self._place_caret(y)
        else:
            y = self._place_footer(y, width)
        self.update()
        return max(y, px(TEXT_LINE))

    def _place_caret(self, y: int) -> int:
        """Behind the last letter, or on a line of its own."""
        px = self.appearance.px
        last = self.parts[-1] if self.parts else None
        if isinstance(last, MarkdownSurface):
            self._caret = QPointF(last.pos()) + last.end_of_text() + QPointF(px(3), px(3))
            return y
        gap = px(_GAP) if last else 0
        self._caret = QPointF(0, y + gap + px(18))
        return y + gap + px(TEXT_LINE)

    def _place_footer(self, y: int, width: int) -> int:
        px = self.appearance.px
        size = self.copy_button.sizeHint()
        footer_width = max(1, width - size.width() - px(8))
        height = max(px(_FOOTER) - px(6), self._footer.heightForWidth(footer_width))
        y += px(6) if self.parts else 0
        self._footer.setGeometry(0, y, footer_width, height)
        self.copy_button.setGeometry(width - size.width(), y - px(1), size.width(), size.height())
        y += height
        if self.answer.notice:
            height = self._notice.heightForWidth(width)
            self._notice.setGeometry(0, y, width, height)
            y += height
        return y

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.answer.is_open and not self.answer.is_thinking:
            px = self.appearance.px
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.appearance.theme.color("accent"))
            painter.drawRoundedRect(QRectF(self._caret.x(), self._caret.y() - px(16), px(8), px(17)), 2, 2)

    def enterEvent(self, event: QEnterEvent) -> None:
        self.copy_button.reveal(True)

    def leaveEvent(self, event: QEvent) -> None:
        self.copy_button.reveal(False)

    def _on_part_changed(self, part: CodeBlock) -> None:
        self._heights[self.parts.index(part)] = 0
        self.height_changed.emit()

    def _on_reasoning_toggled(self) -> None:
        if self.reasoning:
            self.reasoning.refresh(self._show_sources)
        self.height_changed.emit()
