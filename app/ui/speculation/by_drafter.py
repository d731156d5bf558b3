"""How well each drafter of an answer does, where two of them draft in turn."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent

from app.engine.rounds import DrafterKind
from app.ui.speculation.charts import Chart
from app.ui.speculation.marks import Mark, draw_mark
from app.ui.speculation.measures import DASH, percent_text
from app.ui.theme import HINT, Appearance


class ByDrafter(Chart):
    """The acceptance rates of the draft model and of lookup, each behind the mark of its tokens."""

    KINDS = (DrafterKind.model, DrafterKind.lookup)
    _MARKS = (Mark.draft, Mark.lookup)
    _NAMES = ("draft model", "lookup")

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance, "Draft acceptance rate by drafter", 16)
        self._texts = (DASH, DASH)
        self.describe()

    def set_rates(self, model: float | None, lookup: float | None) -> None:
        self._texts = (percent_text(model), percent_text(lookup))
        self.describe()
        self.update()

    def description(self) -> str:
        words = ("not known yet" if text == DASH else text for text in self._texts)
        return ", ".join(f"{name} {text}" for name, text in zip(self._NAMES, words, strict=True))

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self.appearance.theme, self.appearance.px
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self.appearance.font(HINT, tabular=True))
        half, size = self.width() / len(self._NAMES), px(8)
        for i, (mark, name, text) in enumerate(zip(self._MARKS, self._NAMES, self._texts, strict=True)):
            line = QRectF(round(i * half), 0, half, self.height())
            draw_mark(painter, mark, QRectF(line.left(), round(line.center().y() - size / 2), size, size), theme)
            painter.setPen(theme.color("soft"))
            words = line.adjusted(size + px(4), 0, 0, 0)
            painter.drawText(words, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, f"{name} {text}")
