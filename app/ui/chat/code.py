"""A block of code in an answer: its language, Copy and Wrap above, the code below, coloured when it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPalette, QPen, QTextOption, QWheelEvent
from PySide6.QtWidgets import QLabel, QTextEdit, QWidget

from app.ui.chat.alignment import plain_positions
from app.ui.chat.buttons import CopyButton, WordButton
from app.ui.chat.fences import Segment
from app.ui.chat.highlight import Highlighter
from app.ui.chat.messages import SourceRun
from app.ui.chat.surface import PlainSurface
from app.ui.theme import CONTROL, LABEL, Appearance

_RADIUS, _HEADER, _PADDING = 12, 34, 14
_LINE = 21


class CodeSurface(PlainSurface):
    """Lines that do not wrap; the sideways wheel moves them."""

    def __init__(self, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(appearance, parent)
        self.set_style(CONTROL, _LINE, fixed=True)
        self.set_wrapped(False)
        theme = appearance.theme
        self.horizontalScrollBar().setStyleSheet(
            "QScrollBar:horizontal { height: 8px; background: transparent; }"
            f"QScrollBar::handle:horizontal {{ background: {theme.line}; border-radius: 3px; min-width: 32px; }}"
            "QScrollBar::add-line, QScrollBar::sub-line { width: 0; }"
            "QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }"
        )

    def set_wrapped(self, wrapped: bool) -> None:
        policy = Qt.ScrollBarPolicy
        mode = QTextEdit.LineWrapMode
        self.setLineWrapMode(mode.WidgetWidth if wrapped else mode.NoWrap)
        self.setHorizontalScrollBarPolicy(policy.ScrollBarAlwaysOff if wrapped else policy.ScrollBarAsNeeded)
        option = self.document().defaultTextOption()
        wrap = QTextOption.WrapMode
        option.setWrapMode(wrap.WrapAtWordBoundaryOrAnywhere if wrapped else wrap.NoWrap)
        self.document().setDefaultTextOption(option)

    def height_for(self, width: int) -> int:
        if self.lineWrapMode() is QTextEdit.LineWrapMode.WidgetWidth:
            return super().height_for(width)
        size = self.document().size()
        is_wider = self.document().idealWidth() > width
        return -int(-size.height() // 1) + (self.horizontalScrollBar().sizeHint().height() + 4 if is_wider else 0)

    def wheelEvent(self, event: QWheelEvent) -> None:
        sideways = event.angleDelta().x() or (
            event.angleDelta().y() if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 0
        )
        bar = self.horizontalScrollBar()
        if sideways and bar.maximum():
            bar.setValue(bar.value() - (event.pixelDelta().x() or sideways // 2))
            event.accept()
        else:
            event.ignore()


class CodeBlock(QWidget):
    """One code segment. It grows with `show_segment` and is coloured once its fence is closed."""

    height_changed = Signal()

    def __init__(self, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._language = QLabel(self)
        self._language.setFont(appearance.font(LABEL))
        palette = appearance.palette()
        palette.setColor(QPalette.ColorRole.Text, appearance.theme.color("soft"))
        self._language.setPalette(palette)
        self.copy_button = CopyButton("Copy", "Copy code", appearance, self)
        self.wrap_button = WordButton("Wrap", "Wrap long lines", appearance, self)
        self.wrap_button.setCheckable(True)
        self.surface = CodeSurface(appearance, self)
        self._text = ""
        self._highlighter: Highlighter | None = None
        self.copy_button.clicked.connect(lambda: self.copy_button.copy(self._text))
        self.wrap_button.toggled.connect(self._on_wrap_toggled)

    @property
    def highlighter(self) -> Highlighter | None:
        return self._highlighter

    def show_segment(self, segment: Segment, raw: str, runs: Sequence[SourceRun]) -> None:
        """`runs` are counted from the start of the segment."""
        self._text = segment.content(raw)
        self._language.setText(segment.language or "text")
        self.surface.setAccessibleName(f"Code, {segment.language}" if segment.language else "Code")
        self.surface.set_text(self._text)
        if runs:
            positions = plain_positions(raw[segment.start : segment.end], segment.indent)
            runs = [replace(run, start=positions[run.start], end=positions[run.end]) for run in runs]
        self.surface.set_tints(runs)
        if segment.is_closed and self._highlighter is None:
            self._highlighter = Highlighter(self.surface.document(), segment.language, self._appearance, self)
            self._highlighter.start(self._text)

    def height_for(self, width: int) -> int:
        """Lay out at this width; the height that takes."""
        px = self._appearance.px
        padding, header = px(_PADDING), px(_HEADER)
        height = self.surface.height_for(width - 2 * padding)
        self.surface.setGeometry(padding, header + px(10), width - 2 * padding, height)
        right = width - px(8)
        for button in (self.wrap_button, self.copy_button):
            size = button.sizeHint()
            right -= size.width()
            button.setGeometry(right, (header - size.height()) // 2, size.width(), size.height())
        self._language.setGeometry(padding, 0, max(0, right - padding), header)
        return header + height + px(22)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self._appearance.theme, self._appearance.px
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(theme.color("line"), 1))
        painter.setBrush(theme.color("surface"))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), px(_RADIUS), px(_RADIUS))
        painter.drawLine(QPointF(1, px(_HEADER) + 0.5), QPointF(self.width() - 1, px(_HEADER) + 0.5))

    def _on_wrap_toggled(self, wrapped: bool) -> None:
        self.surface.set_wrapped(wrapped)
        self.height_changed.emit()
