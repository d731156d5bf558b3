"""The line above the transcript: the chat's title, the pair, and what the window can show or hide."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.ui.theme import TEXT, Appearance
from app.ui.widgets.buttons import IconButton
from app.ui.widgets.chip import PairChip
from app.ui.widgets.icons import Icon
from app.ui.widgets.labels import ElidedLabel


class Header(QWidget):
    picker_requested = Signal()
    sidebar_requested = Signal()
    sources_requested = Signal()
    panel_requested = Signal()

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self.title = ElidedLabel(appearance, size=TEXT, bold=True)
        self.chip = PairChip(appearance)
        self.chip.clicked.connect(self.picker_requested)
        self.sidebar_button = IconButton(appearance, Icon.sidebar, "Show the chats (Ctrl+B)")
        self.sidebar_button.clicked.connect(self.sidebar_requested)
        self.sources_button = IconButton(appearance, Icon.colors, "Colour the tokens by source (Ctrl+Shift+C)")
        self.panel_button = IconButton(appearance, Icon.panel, "Show the speculation panel (Ctrl+Shift+P)")
        for button, signal in (
            (self.sources_button, self.sources_requested),
            (self.panel_button, self.panel_requested),
        ):
            button.setCheckable(True)
            button.clicked.connect(signal)

        chip_row = QHBoxLayout()
        chip_row.addWidget(self.chip)
        chip_row.addStretch(1)
        self._texts = QVBoxLayout()
        self._texts.addStretch(1)
        self._texts.addWidget(self.title)
        self._texts.addLayout(chip_row)
        self._texts.addStretch(1)
        self._layout = QHBoxLayout(self)
        self._layout.addWidget(self.sidebar_button)
        self._layout.addLayout(self._texts, 1)
        self._layout.addWidget(self.sources_button)
        self._layout.addWidget(self.panel_button)
        appearance.changed.connect(self._restyle)
        self._restyle()

    def show_columns(self, *, is_sidebar_shown: bool, is_panel_shown: bool) -> None:
        self.sidebar_button.setVisible(not is_sidebar_shown)
        self.panel_button.setChecked(is_panel_shown)

    def _restyle(self) -> None:
        px = self._appearance.px
        self.setFixedHeight(px(84))
        self._layout.setContentsMargins(px(24), 0, px(16), 0)
        self._layout.setSpacing(px(4))
        self._texts.setSpacing(px(6))
