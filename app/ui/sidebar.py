"""The left column: the mark, New chat, the chats of this run by day, Models and Settings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.ui import wording
from app.ui.chats import Chat
from app.ui.theme import HINT, TEXT, Appearance
from app.ui.widgets.buttons import IconButton, Weight, push_button
from app.ui.widgets.icons import Icon, draw_mark
from app.ui.widgets.labels import Label

_CHAT_ID = Qt.ItemDataRole.UserRole  # absent on a heading


class Sidebar(QWidget):
    new_chat_requested = Signal()
    chat_chosen = Signal(int)  # conversation id
    models_requested = Signal()
    settings_requested = Signal()
    collapse_requested = Signal()

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._mark = _Mark(appearance)
        self._name = Label(appearance, "Slipstream", size=TEXT, bold=True)
        self.collapse_button = IconButton(appearance, Icon.sidebar, "Hide the chats (Ctrl+B)")
        self.collapse_button.clicked.connect(self.collapse_requested)
        self.new_button = push_button("New chat", Weight.primary)
        self.new_button.setToolTip("Start a new chat (Ctrl+N)")
        self.new_button.clicked.connect(self.new_chat_requested)
        self.list = QListWidget()
        self.list.setAccessibleName("Chats")
        self.list.setFrameShape(QListWidget.Shape.NoFrame)
        self.list.setItemDelegate(_ChatDelegate(appearance, self.list))
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setVerticalScrollMode(QListWidget.ScrollMode.ScrollPerPixel)
        self.list.viewport().setAutoFillBackground(False)
        self.list.setMouseTracking(True)
        self.list.currentItemChanged.connect(self._on_current_item_changed)
        self.models_button = IconButton(appearance, Icon.models, "Models", shows_text=True)
        self.models_button.setToolTip("Choose target and draft (Ctrl+O)")
        self.models_button.clicked.connect(self.models_requested)
        self.settings_button = IconButton(appearance, Icon.settings, "Settings", shows_text=True)
        self.settings_button.setToolTip("Appearance and sampling (Ctrl+,)")
        self.settings_button.clicked.connect(self.settings_requested)
        self._offline = Label(appearance, "Offline", size=HINT, token="faint")
        self._offline.setToolTip("Nothing here connects to a network.")

        self._top = QHBoxLayout()
        self._top.addWidget(self._mark)
        self._top.addWidget(self._name)
        self._top.addStretch(1)
        self._top.addWidget(self.collapse_button)
        self._new = QHBoxLayout()
        self._new.addWidget(self.new_button)
        self._bottom = QHBoxLayout()
        self._bottom.addWidget(self.settings_button)
        self._bottom.addStretch(1)
        self._bottom.addWidget(self._offline)
        self._layout = QVBoxLayout(self)
        self._layout.setSpacing(0)
        self._layout.addLayout(self._top)
        self._layout.addLayout(self._new)
        self._layout.addWidget(self.list, 1)
        self._layout.addWidget(self.models_button)
        self._layout.addLayout(self._bottom)
        appearance.changed.connect(self._restyle)
        self._restyle()

    def show_chats(self, chats: Sequence[Chat], current_id: int) -> None:
        """Fill the list, newest first, with a heading for each day."""
        self.list.blockSignals(True)  # filling is not choosing
        self.list.clear()
        heading = ""
        for chat in chats:
            day = wording.day_of(chat.started.date(), date.today())
            if day != heading:
                heading = day
                item = QListWidgetItem(day, self.list)
                item.setFlags(Qt.ItemFlag.NoItemFlags)
            item = QListWidgetItem(chat.title, self.list)
            item.setData(_CHAT_ID, chat.id)
            item.setToolTip(chat.title)
            if chat.id == current_id:
                self.list.setCurrentItem(item)
        self.list.blockSignals(False)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), self._appearance.theme.color("side"))

    def _restyle(self) -> None:
        px = self._appearance.px
        self._layout.setContentsMargins(px(10), px(11), px(10), px(12))
        self._top.setContentsMargins(px(10), 0, 0, px(12))
        self._top.setSpacing(px(8))
        self._new.setContentsMargins(px(6), 0, px(6), 0)
        self._bottom.setContentsMargins(0, 0, px(10), 0)
        self.new_button.setFixedHeight(px(36))
        self.list.setStyleSheet(f"QListWidget {{ background: transparent; margin-top: {px(8)}px; }}")
        self.list.doItemsLayout()

    def _on_current_item_changed(self, item: QListWidgetItem | None) -> None:
        if item is not None and item.data(_CHAT_ID) is not None:
            self.chat_chosen.emit(item.data(_CHAT_ID))


class _Mark(QWidget):
    def __init__(self, appearance: Appearance) -> None:
        super().__init__()
        self._appearance = appearance
        appearance.changed.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        return QSize(self._appearance.px(24), self._appearance.px(14))

    def paintEvent(self, event: QPaintEvent) -> None:
        px = self._appearance.px
        height = px(14)
        draw_mark(QPainter(self), QRectF(0, (self.height() - height) / 2, px(24), height), self._appearance.theme)


class _ChatDelegate(QStyledItemDelegate):
    """A chat is a line of text on a rounded ground when chosen; a heading is small and cannot be chosen."""

    def __init__(self, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(parent)
        self._appearance = appearance

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(0, self._appearance.px(34 if index.data(_CHAT_ID) is not None else 32))

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        theme, px = self._appearance.theme, self._appearance.px
        rect = QRectF(option.rect)  # type: ignore[attr-defined]  # the stubs lack the option's fields
        state = option.state  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        is_chat = index.data(_CHAT_ID) is not None
        if is_chat:
            ground = rect.adjusted(0.5, 1.5, -0.5, -1.5)
            painter.setPen(Qt.PenStyle.NoPen)
            if state & QStyle.StateFlag.State_Selected:
                has_focus = bool(state & QStyle.StateFlag.State_HasFocus)
                painter.setPen(theme.color("accent") if has_focus else Qt.PenStyle.NoPen)
                painter.setBrush(theme.color("accent_ground"))
                painter.drawRoundedRect(ground, px(7), px(7))
            elif state & QStyle.StateFlag.State_MouseOver:
                painter.setBrush(theme.color("text", 0.05))
                painter.drawRoundedRect(ground, px(7), px(7))
        font = self._appearance.font() if is_chat else self._appearance.font(HINT, bold=True)
        painter.setFont(font)
        painter.setPen(theme.color("text" if is_chat else "faint"))
        box = rect.adjusted(px(10), 0 if is_chat else px(6), -px(10), 0)
        metrics = painter.fontMetrics()
        text = metrics.elidedText(str(index.data()), Qt.TextElideMode.ElideRight, int(box.width()))
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)
        painter.restore()
