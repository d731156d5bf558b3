"""What stands in a transcript without messages: one sentence that teaches, and one action."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from app.ui.theme import TEXT, Appearance
from app.ui.widgets.buttons import push_button


class EmptyState(QWidget):
    acted = Signal()

    def __init__(self, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self.label = QLabel()
        self.label.setWordWrap(True)
        self.label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.button = push_button("")
        self.button.clicked.connect(self.acted)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.addWidget(self.label)
        self._layout.addWidget(self.button, 0, Qt.AlignmentFlag.AlignHCenter)
        self.show_text("", "")
        self.restyle()

    def heightForWidth(self, width: int) -> int:
        return self._layout.totalHeightForWidth(width)

    def show_text(self, text: str, action: str) -> None:
        self.label.setText(text)
        self.button.setText(action)
        self.button.setVisible(bool(action))
        self.button.setFocusPolicy(Qt.FocusPolicy.StrongFocus if action else Qt.FocusPolicy.NoFocus)

    def restyle(self) -> None:
        palette = self._appearance.palette()
        palette.setColor(QPalette.ColorRole.WindowText, self._appearance.theme.color("soft"))
        palette.setColor(QPalette.ColorRole.Text, self._appearance.theme.color("soft"))
        self.label.setPalette(palette)
        self.label.setFont(self._appearance.font(TEXT))
        self._layout.setSpacing(self._appearance.px(16))
