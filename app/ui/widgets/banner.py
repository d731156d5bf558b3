"""Messages in place: what happened, what it means, and a way out. They stack, and nothing else ever pops up."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.ui.chat.column import column
from app.ui.chats import ProblemKind
from app.ui.theme import Appearance
from app.ui.widgets.buttons import IconButton, Weight, push_button
from app.ui.widgets.icons import Icon, draw_icon
from app.ui.widgets.labels import Label

MAX_BANNERS = 3
_ICONS = {ProblemKind.info: Icon.info, ProblemKind.warning: Icon.warning, ProblemKind.error: Icon.error}
_TOKENS = {ProblemKind.info: "accent", ProblemKind.warning: "warning", ProblemKind.error: "error"}


class Banner(QWidget):
    """One message. The kind shows as colour and as shape."""

    def __init__(
        self, appearance: Appearance, kind: ProblemKind, text: str, action: str, on_action: Callable[[], None] | None
    ) -> None:
        super().__init__()
        self._appearance = appearance
        self.kind = kind
        self.text = text
        px = appearance.px
        self.setAccessibleName(f"{kind.value}: {text}")
        self._label = Label(appearance, text, wraps=True)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(px(40), px(8), px(8), px(8))
        layout.setSpacing(px(8))
        layout.addWidget(self._label, 1)
        self.action_button = None
        if on_action is not None:
            self.action_button = push_button(action, Weight.plain)
            self.action_button.clicked.connect(on_action)
            layout.addWidget(self.action_button, 0, Qt.AlignmentFlag.AlignVCenter)
        self.close_button = IconButton(appearance, Icon.close, "Dismiss this message")
        layout.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignVCenter)
        appearance.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self._appearance.theme, self._appearance.px
        color = theme.color(_TOKENS[self.kind])
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(theme.color(_TOKENS[self.kind], 0.45))
        painter.setBrush(theme.color("surface"))
        painter.drawRoundedRect(rect, px(10), px(10))
        painter.setBrush(theme.color(_TOKENS[self.kind], 0.07))
        painter.drawRoundedRect(rect, px(10), px(10))
        draw_icon(painter, _ICONS[self.kind], QRectF(px(13), self.height() / 2 - px(9), px(18), px(18)), color)


class BannerStack(QWidget):
    """Up to three banners, the newest on top. The same text never stands there twice."""

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._banners: list[Banner] = []  # newest first
        self._layout = QVBoxLayout(self)
        self._layout.setSpacing(appearance.px(8))
        self.hide()

    @property
    def banners(self) -> tuple[Banner, ...]:
        return tuple(self._banners)

    def add(
        self, kind: ProblemKind, text: str, action: str = "", on_action: Callable[[], None] | None = None
    ) -> Banner:
        for banner in [b for b in self._banners if b.text == text]:
            self.remove(banner)
        banner = Banner(self._appearance, kind, text, action, on_action)
        banner.close_button.clicked.connect(lambda: self.remove(banner))
        self._banners.insert(0, banner)
        self._layout.insertWidget(0, banner)
        for old in self._banners[MAX_BANNERS:]:
            self.remove(old)
        self.show()
        return banner

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        left, width = column(self._appearance, self.width())
        self._layout.setContentsMargins(left, 0, self.width() - left - width, self._appearance.px(8))

    def remove(self, banner: Banner) -> None:
        if banner in self._banners:
            self._banners.remove(banner)
            self._layout.removeWidget(banner)
            banner.hide()
            banner.deleteLater()
        self.setVisible(bool(self._banners))
