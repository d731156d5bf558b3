"""A field for a GGUF file: type, browse, drop, or take a recent one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLineEdit, QMenu, QWidget

from app.ui import wording
from app.ui.theme import Appearance
from app.ui.widgets.buttons import Weight, push_button


class FileField(QWidget):
    changed = Signal()

    def __init__(
        self,
        appearance: Appearance,
        name: str,
        *,
        starter: Path | None,
        recent: Sequence[str],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._starter = starter
        self.setAcceptDrops(True)
        self.edit = QLineEdit()
        self.edit.setAccessibleName(name)
        self.edit.setPlaceholderText("No file chosen")
        self.edit.setAcceptDrops(False)  # a drop replaces the path; it is not inserted into it
        self.edit.textChanged.connect(lambda _text: self.changed.emit())
        self.recent_button = push_button("Recent", Weight.link)
        self.recent_button.setAccessibleName(f"{name}: recent files")
        self.recent_button.setMenu(self._menu(recent))
        self.browse_button = push_button("Browse…")
        self.browse_button.setAccessibleName(f"{name}: browse")
        self.browse_button.clicked.connect(self._browse)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(appearance.px(8))
        layout.addWidget(self.edit, 1)
        layout.addWidget(self.recent_button)
        layout.addWidget(self.browse_button)
        self.setFocusProxy(self.edit)

    def file(self) -> Path | None:
        text = self.edit.text().strip().strip('"')
        return Path(text).expanduser().absolute() if text else None

    def set_file(self, file: Path | None) -> None:
        self.edit.setText(str(file) if file is not None else "")
        self.edit.setCursorPosition(len(self.edit.text()))  # the name matters more than the folder

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _dropped_file(event) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        file = _dropped_file(event)
        if file is not None:
            self.set_file(file)
            event.acceptProposedAction()

    def _menu(self, recent: Sequence[str]) -> QMenu:
        menu = QMenu(self)
        if self._starter is not None:
            starter = self._starter
            menu.addAction(f"Starter model ({wording.model_name(starter)})", lambda: self.set_file(starter))
        files = [Path(file) for file in recent if file != str(self._starter)]
        if files:
            menu.addSeparator()
        for file in files:
            action = menu.addAction(wording.model_name(file))
            action.setToolTip(str(file))
            action.triggered.connect(functools.partial(self._take_recent, file))
        menu.setToolTipsVisible(True)
        if menu.isEmpty():
            menu.addAction("Nothing yet").setEnabled(False)
        return menu

    def _take_recent(self, file: Path, _checked: bool) -> None:
        self.set_file(file)

    def _browse(self) -> None:
        current = self.file()
        folder = str(current.parent) if current is not None else ""
        name, _ = QFileDialog.getOpenFileName(self, "Choose a model", folder, "Models (*.gguf);;All files (*)")
        if name:
            self.set_file(Path(name))


def _dropped_file(event: QDropEvent) -> Path | None:
    files = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
    return next((file for file in files if file.suffix.lower() == ".gguf"), None)
