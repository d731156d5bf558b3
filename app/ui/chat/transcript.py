"""The conversation as the reader sees it: a scroll area in which only the messages near the viewport are widgets."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QHideEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QAbstractSlider, QFrame, QWidget

from app.chat import Role
from app.engine.rounds import Span
from app.ui.chat.buttons import JumpButton
from app.ui.chat.column import TEXT_LINE, column
from app.ui.chat.empty import EmptyState
from app.ui.chat.highlight import find_lexer
from app.ui.chat.messages import Answer, ShownMessage
from app.ui.chat.rows import Row, Rows
from app.ui.chat.views import AnswerView, MessageView, NoteView, UserView
from app.ui.theme import Appearance

__all__ = ["ShownMessage", "TranscriptView"]

FRAME_MS = 33
_AT_BOTTOM = 4  # pixels from the end that still count as the end
_ROUNDS_OF_MEASURING = 8  # a height corrected may bring another message into view

_SCROLL_KEYS = {
    Qt.Key.Key_PageUp: QAbstractSlider.SliderAction.SliderPageStepSub,
    Qt.Key.Key_PageDown: QAbstractSlider.SliderAction.SliderPageStepAdd,
    Qt.Key.Key_Home: QAbstractSlider.SliderAction.SliderToMinimum,
    Qt.Key.Key_End: QAbstractSlider.SliderAction.SliderToMaximum,
    Qt.Key.Key_Up: QAbstractSlider.SliderAction.SliderSingleStepSub,
    Qt.Key.Key_Down: QAbstractSlider.SliderAction.SliderSingleStepAdd,
}


class TranscriptView(QAbstractScrollArea):
    """Messages by key, one of them possibly being written.

    While the reader is at the end, the view follows the answer; anywhere else, what is being read stays where it is.
    """

    link_activated = Signal(QUrl)
    empty_action_triggered = Signal()

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._rows = Rows(appearance)
        self._keys = itertools.count(1)
        self._open: Row | None = None
        self._queue: list[Span] = []
        self._show_sources = False
        self._follows = True
        self._column = (0, 1)
        self._is_arranging = False
        self._shows_focus = False
        self._is_warm = False
        self._timer = QTimer(self)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self._drain)
        self._empty = EmptyState(appearance, self.viewport())
        self._empty.acted.connect(self.empty_action_triggered)
        self._jump = JumpButton(appearance, self)
        self._jump.clicked.connect(self.jump_to_latest)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Conversation")
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        appearance.changed.connect(self._on_appearance_changed)
        self._style()

    # -- messages -------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        self.load(())

    def load(self, messages: Sequence[ShownMessage], *, answering: bool = False) -> None:
        """Show another conversation from its end. `answering`: its last message is still being written."""
        self._queue.clear()
        self._timer.stop()
        self._open = None
        for row in self._rows:
            self._release(row)
        self._rows.clear()
        for message in messages:
            self._rows.append(Row(next(self._keys), message), self._column[1])
        if answering and messages:
            self._open = self._rows[-1]
            self._answer_of(self._open).reopen()
        self._follows = True
        self._arrange()

    def shown(self) -> list[ShownMessage]:
        """Everything, to be given to `load` later."""
        self._take_queue()
        return [row.shown() for row in self._rows]

    def add_user(self, text: str) -> int:
        return self._add(ShownMessage(Role.user, text))

    def add_note(self, text: str) -> int:
        """A small line between messages."""
        return self._add(ShownMessage(Role.system, text))

    def begin_answer(self) -> int:
        if self._open:
            self.finish_answer("")
        key = self._add(ShownMessage(Role.assistant))
        self._open = self._rows[-1]
        self._open.answer = Answer()
        if self._open.view:
            self._release(self._open)
        self._arrange()
        return key

    def append(self, spans: Sequence[Span]) -> None:
        """Add to the open answer, at the next frame."""
        if self._open is None:
            return
        self._queue.extend(spans)
        if self._queue and self.isVisible() and not self._timer.isActive():
            self._timer.start()

    def finish_answer(self, footer: str, notice: str = "") -> None:
        if self._open is None:
            return
        self._take_queue()
        row, self._open = self._open, None
        self._answer_of(row).finish(footer, notice)
        self._refresh(row)

    def set_show_sources(self, shown: bool) -> None:
        self._show_sources = shown
        for row in self._rows:
            if row.view:
                row.view.set_show_sources(shown)
        self._measure_views()

    def set_empty_state(self, text: str, action: str = "") -> None:
        """What stands here while there is no message; `action` is the text of a button, "" for none."""
        self._empty.show_text(text, action)
        self._arrange()

    def jump_to_latest(self) -> None:
        self._follows = True
        self._arrange()

    @property
    def is_following(self) -> bool:
        return self._follows

    def views(self) -> dict[int, MessageView]:
        """The messages that are widgets at present, by key."""
        return {row.key: row.view for row in self._rows if row.view}

    def _add(self, message: ShownMessage) -> int:
        row = Row(next(self._keys), message)
        self._rows.append(row, self._column[1])
        self._follows = True
        self._arrange()
        return row.key

    def _answer_of(self, row: Row) -> Answer:
        if row.answer is None:
            row.answer = Answer(row.message)
        return row.answer

    # -- streaming ------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        if self._queue and self._open:
            self._take_queue()
            self._refresh(self._open)
        else:
            self._timer.stop()

    def _take_queue(self) -> None:
        if self._queue and self._open:
            self._answer_of(self._open).append(self._queue)
            self._queue.clear()

    def _refresh(self, row: Row) -> None:
        if isinstance(row.view, AnswerView):
            row.view.refresh()
            self._measure(row)
        self._arrange()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._is_warm:
            self._is_warm = True
            # The first lexer costs 50 ms of imports: better now than in the middle of an answer.
            threading.Thread(target=find_lexer, args=("python",), daemon=True).start()
        if self._queue:
            self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        self._timer.stop()
        super().hideEvent(event)

    # -- layout ---------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Make widgets of what is near, measure them, and keep in place what the reader looks at."""
        if self._is_arranging:
            return
        self._is_arranging = True
        try:
            self._empty.setVisible(not len(self._rows))
            bar = self.verticalScrollBar()
            for _ in range(_ROUNDS_OF_MEASURING):
                height = self.viewport().height()
                bar.setPageStep(height)
                bar.setSingleStep(self._appearance.px(TEXT_LINE))
                bar.setRange(0, max(0, self._rows.total - height))
                bar.setValue(bar.maximum() if self._follows else self._rows.anchored_value)
                if not self._realise_near(bar.value()):
                    break
            for row_index in range(len(self._rows)):
                row = self._rows[row_index]
                if row.view:
                    row.view.setGeometry(
                        self._column[0], self._rows.top(row_index) - bar.value(), self._column[1], row.height
                    )
            self._release_far(bar.value())
            if self._follows:
                self._rows.set_anchor(bar.value())
        finally:
            self._is_arranging = False
        self._place_overlays()

    def _near(self, value: int, screens: int) -> range:
        if not len(self._rows):
            return range(0)
        reach = screens * self.viewport().height()
        return range(self._rows.at(value - reach), self._rows.at(value + self.viewport().height() + reach) + 1)

    def _realise_near(self, value: int) -> bool:
        """True if a height turned out otherwise than assumed."""
        has_changed = False
        for index in self._near(value, 1):
            row = self._rows[index]
            if row.view is None:
                row.view = self._make_view(row)
                row.is_measured = False
            if not row.is_measured:
                has_changed |= self._rows.set_height(index, row.view.place(self._column[1]))
        return has_changed

    def _make_view(self, row: Row) -> MessageView:
        view: MessageView
        if row.message.role is Role.user:
            view = UserView(row.message.text, self._appearance, self.viewport())
        elif row.message.role is Role.system:
            view = NoteView(row.message.text, self._appearance, self.viewport())
        else:
            view = AnswerView(self._answer_of(row), self._show_sources, self._appearance, self.viewport())
        view.link_activated.connect(self.link_activated)
        view.height_changed.connect(lambda: self._on_view_height_changed(row))
        view.setVisible(True)
        return view

    def _measure(self, row: Row) -> None:
        if row.view:
            index = len(self._rows) - 1 if row is self._rows[-1] else list(self._rows).index(row)
            self._rows.set_height(index, row.view.place(self._column[1]))

    def _measure_views(self) -> None:
        for row in self._rows:
            self._measure(row)
        self._arrange()

    def _release_far(self, value: int) -> None:
        near = self._near(value, 2)
        for index, row in enumerate(self._rows):
            # The open answer keeps its widget, and so does one in which something has the focus.
            if row.view and index not in near and row is not self._open and not _has_focus(row.view):
                self._release(row)

    def _release(self, row: Row) -> None:
        if row.view:
            row.view.hide()
            row.view.deleteLater()
            row.view = None

    def _place_overlays(self) -> None:
        px = self._appearance.px
        viewport = self.viewport()
        width = min(px(420), viewport.width() - px(48))
        height = self._empty.heightForWidth(max(1, width))
        self._empty.setGeometry((viewport.width() - width) // 2, (viewport.height() - height) // 2, width, height)
        size = self._jump.sizeHint()
        self._jump.setGeometry(
            (self.width() - size.width()) // 2, self.height() - size.height() - px(12), size.width(), size.height()
        )
        self._jump.setVisible(self._open is not None and not self._follows)
        self._jump.raise_()

    def _style(self) -> None:
        self._empty.restyle()

    # -- what the reader does ---------------------------------------------------------------------------------------

    def _on_scrolled(self, value: int) -> None:
        if self._is_arranging:
            return
        self._follows = value >= self.verticalScrollBar().maximum() - _AT_BOTTOM
        self._rows.set_anchor(value)
        self._arrange()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """Nothing: `_on_scrolled` moves the messages."""

    def _on_view_height_changed(self, row: Row) -> None:
        # The reader opened or closed something: it opens downwards, also at the end of the transcript.
        bar = self.verticalScrollBar()
        self._rows.set_anchor(bar.value())
        self._follows = False
        self._measure(row)
        self._arrange()
        self._follows = bar.value() >= bar.maximum() - _AT_BOTTOM
        self._place_overlays()

    def _on_appearance_changed(self) -> None:
        for row in self._rows:
            self._release(row)
        self._column = column(self._appearance, self.width())
        self._rows.forget_heights(self._column[1])
        self._style()
        self._arrange()
        self.viewport().update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        old, self._column = self._column, column(self._appearance, self.width())
        if old[1] != self._column[1]:
            self._rows.forget_heights(self._column[1])
        self._arrange()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        action = _SCROLL_KEYS.get(Qt.Key(event.key()))
        if action is None:
            super().keyPressEvent(event)
        else:
            self.verticalScrollBar().triggerAction(action)

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._shows_focus = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self.viewport().update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._shows_focus = False
        self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = self._appearance.theme
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), theme.color("ground"))
        if self._shows_focus:
            painter.setPen(QPen(theme.color("accent"), 1))
            painter.drawRect(self.viewport().rect().adjusted(0, 0, -1, -1))


def _has_focus(view: MessageView) -> bool:
    return view.isAncestorOf(view.window().focusWidget())
