"""Where a message is written: one field that grows, a hint, a token count, and one button that is Send or Stop."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QMimeData, QObject, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QInputMethodEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QPen,
    QResizeEvent,
    QShowEvent,
    QTextCursor,
)
from PySide6.QtWidgets import QAbstractButton, QFrame, QLabel, QTextEdit, QWidget

from app.ui.chat.column import column
from app.ui.theme import LABEL, TEXT, Appearance

_RADIUS, _PADDING, _FOOT, _BELOW = 14, 16, 28, 24
_SHARE = 0.4  # of the window, at most
_REMEMBERED = 100  # messages
_STEPS = {int(Qt.Key.Key_Up): -1, int(Qt.Key.Key_Down): 1}  # through what was sent before


class Prompt(QTextEdit):
    """The text being written. Plain text only; Enter sends it, Shift+Enter breaks the line."""

    submitted = Signal()
    stop_requested = Signal()
    focus_changed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._history: list[str] = []
        self._recalled: int | None = None
        self._is_composing = False
        self.setAcceptRichText(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setPlaceholderText("Ask anything.")
        self.setAccessibleName("Message")
        self.document().setDocumentMargin(0)
        self.viewport().setAutoFillBackground(False)

    def remember(self, text: str) -> None:
        if not self._history or self._history[-1] != text:
            self._history = [*self._history, text][-_REMEMBERED:]
        self._recalled = None

    def set_history(self, texts: Sequence[str]) -> None:
        self._history = list(texts)[-_REMEMBERED:]
        self._recalled = None

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._is_composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        is_plain = modifiers == Qt.KeyboardModifier.NoModifier
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            if self._is_composing:
                event.ignore()
            elif modifiers & Qt.KeyboardModifier.ShiftModifier:
                self.insertPlainText("\n")  # Qt would put a line separator into the text
                self.ensureCursorVisible()
            else:
                self.submitted.emit()
        elif event.key() == Qt.Key.Key_Escape and not self._is_composing:
            self.stop_requested.emit()
        elif is_plain and (step := _STEPS.get(event.key())) and self._recall(step):
            event.accept()
        else:
            super().keyPressEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() and not source.hasUrls()

    def insertFromMimeData(self, source: QMimeData) -> None:
        if source.hasText():
            self.insertPlainText(source.text())

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit()

    def _recall(self, step: int) -> bool:
        """Go through what was sent before, as long as nothing else is written. False: an ordinary arrow key."""
        text = self.toPlainText()
        if self._recalled is not None and text != self._history[self._recalled]:
            self._recalled = None
        if self._recalled is None:
            if text or step > 0 or not self._history:
                return False
            self._recalled = len(self._history)
        elif not self._is_at_edge(step):
            return False
        index = max(0, self._recalled + step)
        self._recalled = index if index < len(self._history) else None
        self.setPlainText("" if self._recalled is None else self._history[self._recalled])
        self.moveCursor(QTextCursor.MoveOperation.End)
        return True

    def _is_at_edge(self, step: int) -> bool:
        """Can the cursor go no further up, or down?"""
        cursor = self.textCursor()
        move = QTextCursor.MoveOperation.Up if step < 0 else QTextCursor.MoveOperation.Down
        return not cursor.movePosition(move)


class SendButton(QAbstractButton):
    """An arrow up that sends, or a square that stops."""

    def __init__(self, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self.stops = False
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAccessibleName("Send")

    def set_stops(self, stops: bool) -> None:
        self.stops = stops
        self.setAccessibleName("Stop" if stops else "Send")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(self._appearance.px(34), self._appearance.px(28))

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self._appearance.theme, self._appearance.px
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect()).adjusted(1, 1, -1, -1)
        painter.setPen(QPen(theme.color("text"), 1.5) if self.hasFocus() else Qt.PenStyle.NoPen)
        ground = theme.color("accent" if self.isEnabled() else "line")
        if self.underMouse() and self.isEnabled():
            ground = ground.lighter(108)
        painter.setBrush(ground)
        painter.drawRoundedRect(rect, px(9), px(9))
        ink = theme.color("on_accent" if self.isEnabled() else "faint")
        middle = rect.center()
        if self.stops:
            side = px(9)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ink)
            painter.drawRoundedRect(QRectF(middle.x() - side / 2, middle.y() - side / 2, side, side), 1.5, 1.5)
            return
        pen = QPen(ink, px(2))
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        painter.setPen(pen)
        arm = px(5)
        tip = middle - QPointF(0, px(6))
        painter.drawLine(middle + QPointF(0, px(6)), tip)
        painter.drawPolyline([tip + QPointF(-arm, arm), tip, tip + QPointF(arm, arm)])


class Composer(QWidget):
    """Text is never lost: it leaves the field only when it has been handed over with `submitted`."""

    submitted = Signal(str)
    stop_requested = Signal()

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._is_busy = False
        self._reason: str | None = None
        self._hint_text = ""
        self._field = QRectF()
        self.prompt = Prompt(self)
        self.button = SendButton(appearance, self)
        self._hint = QLabel(self)
        self._count = QLabel(self)
        self._count.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        for label in (self._hint, self._count):
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.prompt.submitted.connect(self._submit)
        self.prompt.stop_requested.connect(self._stop)
        self.prompt.focus_changed.connect(self.update)
        self.prompt.textChanged.connect(self._on_text_changed)
        self.button.clicked.connect(self._on_clicked)
        appearance.changed.connect(self._style)
        self._style()
        self._update_button()

    # -- what the window says ---------------------------------------------------------------------------------------

    def text(self) -> str:
        return self.prompt.toPlainText()

    def set_text(self, text: str) -> None:
        self.prompt.setPlainText(text)
        self.prompt.moveCursor(QTextCursor.MoveOperation.End)

    def set_hint(self, text: str) -> None:
        self._hint_text = text
        self._show_hint()

    def set_count(self, text: str) -> None:
        self._count.setText(text)
        self._place()

    def set_busy(self, busy: bool) -> None:
        """While busy the button stops; the next message can be written, but not sent."""
        self._is_busy = busy
        self._update_button()

    def set_enabled_reason(self, reason: str | None) -> None:
        """None, or why nothing can be sent now."""
        self._reason = reason
        self._show_hint()
        self._update_button()

    def set_history(self, texts: Sequence[str]) -> None:
        """What Up recalls, the latest last."""
        self.prompt.set_history(texts)

    def take_focus(self) -> None:
        self.prompt.setFocus(Qt.FocusReason.OtherFocusReason)

    # -- sending ----------------------------------------------------------------------------------------------------

    def _can_send(self) -> bool:
        return not self._is_busy and self._reason is None and bool(self.text().strip())

    def _submit(self) -> None:
        if self._can_send():
            text = self.text()
            self.prompt.remember(text)
            self.prompt.clear()
            self.submitted.emit(text)

    def _stop(self) -> None:
        if self._is_busy:
            self.stop_requested.emit()

    def _on_clicked(self) -> None:
        if self._is_busy:
            self._stop()
        else:
            self._submit()
        self.take_focus()

    def _on_text_changed(self) -> None:
        self._update_button()
        self._place()

    def _update_button(self) -> None:
        self.button.set_stops(self._is_busy)
        self.button.setEnabled(self._is_busy or self._can_send())
        self.button.setToolTip("Stop (Esc)" if self._is_busy else self._reason or "Send (Enter)")

    def _show_hint(self) -> None:
        self._hint.setText(self._hint_text if self._reason is None else self._reason)
        self._hint.setToolTip(self._reason or "")
        self._place()

    # -- layout -----------------------------------------------------------------------------------------------------

    def sizeHint(self) -> QSize:
        return QSize(self._appearance.px(480), self._height())

    def minimumSizeHint(self) -> QSize:
        return QSize(self._appearance.px(240), self._height())

    def _prompt_height(self) -> int:
        px = self._appearance.px
        lines = -int(-self.prompt.document().size().height() // 1)
        most = round(self.window().height() * _SHARE) - px(_FOOT + 2 * _PADDING)
        return max(px(22), min(lines, max(px(22), most)))

    def _height(self) -> int:
        px = self._appearance.px
        return px(_PADDING) + self._prompt_height() + px(12) + px(_FOOT) + px(10) + px(_BELOW)

    def _place(self) -> None:
        px = self._appearance.px
        left, width = column(self._appearance, self.width())
        padding = px(_PADDING)
        self.prompt.setGeometry(left + padding, padding, max(1, width - padding - px(8)), self.prompt.height())
        height = self._prompt_height()
        self.prompt.resize(self.prompt.width(), height)
        is_full = self.prompt.document().size().height() > height + 1
        policy = Qt.ScrollBarPolicy
        self.prompt.setVerticalScrollBarPolicy(policy.ScrollBarAsNeeded if is_full else policy.ScrollBarAlwaysOff)
        self.setFixedHeight(self._height())
        self._field = QRectF(left, 0, width, self._height() - px(_BELOW))
        top = round(self._field.bottom()) - px(10) - px(_FOOT)
        size = self.button.sizeHint()
        right = left + width - px(14) - size.width()
        self.button.setGeometry(right, top, size.width(), size.height())
        count = min(self._count.sizeHint().width(), width // 2)
        right -= count + px(14)
        self._count.setGeometry(right, top, count, px(_FOOT))
        self._hint.setGeometry(left + padding, top, max(0, right - left - padding - px(8)), px(_FOOT))
        self.update()

    def _style(self) -> None:
        theme = self._appearance.theme
        palette = self._appearance.palette()
        palette.setColor(QPalette.ColorRole.Base, QColor(Qt.GlobalColor.transparent))
        self.prompt.setPalette(palette)
        font = self._appearance.font(TEXT)
        self.prompt.setFont(font)
        self.prompt.document().setDefaultFont(font)
        palette.setColor(QPalette.ColorRole.WindowText, theme.color("faint"))
        for label, token in ((self._hint, "soft"), (self._count, "faint")):
            palette.setColor(QPalette.ColorRole.WindowText, theme.color(token))
            label.setPalette(palette)
            label.setFont(self._appearance.font(LABEL, tabular=True))
        self._place()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.window().installEventFilter(self)
        self._place()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Resize and watched is self.window():
            self._place()  # the field may take a share of the window
        return super().eventFilter(watched, event)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self._appearance.theme, self._appearance.px
        painter = QPainter(self)
        painter.fillRect(event.rect(), theme.color("ground"))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(theme.color("accent" if self.prompt.hasFocus() else "line"), 1))
        painter.setBrush(theme.color("surface"))
        painter.drawRoundedRect(self._field.adjusted(0.5, 0.5, -0.5, -0.5), px(_RADIUS), px(_RADIUS))
