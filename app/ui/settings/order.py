"""The order of the samplers as a list: drag a name, or move it with the buttons or with Alt and the arrow keys."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QHBoxLayout, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from app.engine.protocol import SAMPLERS
from app.ui.theme import Appearance
from app.ui.widgets.buttons import push_button

TITLES = {
    "penalties": "Penalties",
    "dry": "DRY",
    "top_n_sigma": "Top-n-sigma",
    "top_k": "Top-k",
    "typical": "Typical-p",
    "top_p": "Top-p",
    "min_p": "Min-p",
    "xtc": "XTC",
    "temperature": "Temperature",
}
_NAME = Qt.ItemDataRole.UserRole


class OrderList(QWidget):
    changed = Signal(list)  # of the samplers' names, first to last

    def __init__(self, appearance: Appearance, order: Sequence[str]) -> None:
        super().__init__()
        self.list = _List()
        self.list.setProperty("field", "true")
        self.list.setAccessibleName("Order of the samplers")
        self.list.setDragDropMode(QAbstractItemView.DragDropMode.InternalMove)
        self.list.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.up_button, self.down_button, self.usual_button = (
            push_button(text) for text in ("Move up", "Move down", "Usual order")
        )
        buttons = QVBoxLayout()
        buttons.setSpacing(appearance.px(8))
        for button in (self.up_button, self.down_button, self.usual_button):
            buttons.addWidget(button)
        buttons.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(appearance.px(12))
        layout.addWidget(self.list, 1)
        layout.addLayout(buttons)
        self.show_order(order)
        rows = sum(self.list.sizeHintForRow(row) for row in range(self.list.count()))
        self.list.setFixedHeight(rows + appearance.px(12))

        self.up_button.clicked.connect(lambda: self._move(-1))
        self.down_button.clicked.connect(lambda: self._move(1))
        self.usual_button.clicked.connect(self._restore)
        self.list.moved.connect(self._move)
        self.list.currentRowChanged.connect(self._show_ends)
        self.list.model().rowsMoved.connect(self._on_dropped)
        self._show_ends()

    def order(self) -> list[str]:
        return [self.list.item(row).data(_NAME) for row in range(self.list.count())]

    def show_order(self, order: Sequence[str]) -> None:
        self.list.clear()
        for name in order:
            item = QListWidgetItem(TITLES.get(name, name))
            item.setData(_NAME, name)
            # Otherwise a name could be dropped onto another one, and be lost.
            item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsDropEnabled)
            self.list.addItem(item)
        self.list.setCurrentRow(0)

    def _move(self, step: int) -> None:
        row = self.list.currentRow()
        if 0 <= row + step < self.list.count():
            item = self.list.takeItem(row)
            self.list.insertItem(row + step, item)
            self.list.setCurrentItem(item)
            self._on_dropped()

    def _restore(self) -> None:
        self.show_order(SAMPLERS)
        self._on_dropped()

    def _on_dropped(self) -> None:
        self._show_ends()
        self.changed.emit(self.order())

    def _show_ends(self) -> None:
        row = self.list.currentRow()
        self.up_button.setEnabled(row > 0)
        self.down_button.setEnabled(0 <= row < self.list.count() - 1)


class _List(QListWidget):
    moved = Signal(int)  # by so many rows

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
        if step is not None and event.modifiers() & Qt.KeyboardModifier.AltModifier:
            self.moved.emit(step)
        else:
            super().keyPressEvent(event)
