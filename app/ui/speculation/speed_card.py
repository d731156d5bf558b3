"""The card with the one big number: the speed, and how it compares with this pair's measured speed without a draft."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.ui.speculation.charts import SpeedBars
from app.ui.speculation.labels import Words, explain
from app.ui.speculation.measures import DASH, factor_texts, speed_text
from app.ui.theme import BIG, CONTROL, HINT, TEXT, Appearance


class SpeedCard(QWidget):
    """Speeds in tokens a second. The factor is a quotient of two measured speeds, or it is not shown."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__()
        self.appearance = appearance
        self.bars = SpeedBars(appearance)
        self._speed = Words(appearance, DASH, size=BIG, token="text", bold=True, tabular=True)
        self._unit = Words(appearance, "tok/s", size=CONTROL)
        self._factor = Words(appearance, DASH, size=TEXT, token="accent", bold=True, tabular=True)
        self._hint = Words(appearance, size=HINT)
        self._speed.setObjectName("speed")
        self._factor.setObjectName("factor")
        self._hint.setObjectName("factor hint")
        for label in (self._factor, self._hint):
            explain(label, "The speed of the answer divided by the speed measured for this pair without a draft.")

        self._headline = QHBoxLayout()
        self._headline.addWidget(self._speed, 0, Qt.AlignmentFlag.AlignBottom)
        self._headline.addWidget(self._unit, 0, Qt.AlignmentFlag.AlignBottom)
        self._headline.addStretch(1)
        comparison = QVBoxLayout()
        comparison.setSpacing(0)
        comparison.addStretch(1)
        comparison.addWidget(self._factor, 0, Qt.AlignmentFlag.AlignRight)
        comparison.addWidget(self._hint, 0, Qt.AlignmentFlag.AlignRight)
        comparison.addStretch(1)
        self._headline.addLayout(comparison)
        self._column = QVBoxLayout(self)
        self._column.addLayout(self._headline)
        self._column.addWidget(self.bars)
        self._apply_appearance()
        appearance.changed.connect(self._apply_appearance)

    def show_text(self, speed: float | None, plain: float | None, *, missing: str = "") -> None:
        """`missing` says in words why there is nothing to compare, if that is so."""
        self._speed.setText(speed_text(speed))
        # Room for two digits, so that the unit stays where it is between 9.9 and 10.0.
        self._speed.setMinimumWidth(0 if speed is None else self._number_width())
        self._speed.setAccessibleName(
            "Speed: not known yet" if speed is None else f"Speed: {speed_text(speed)} tokens a second"
        )
        factor, hint = DASH, missing
        if not missing and speed is not None and plain is not None:
            factor, hint = factor_texts(speed, plain)
        self._factor.setText(factor)
        self._factor.set_token("faint" if factor == DASH else "accent")
        self._factor.setAccessibleName("Speed-up: not known" if factor == DASH else f"Speed-up: {factor} {hint}")
        self._hint.setText(hint)
        self.bars.describe()

    def _number_width(self) -> int:
        return self._speed.fontMetrics().horizontalAdvance("88.8")

    def _apply_appearance(self) -> None:
        px, metrics = self.appearance.px, self.appearance.metrics
        self._column.setContentsMargins(px(12), px(8), px(12), px(12))
        self._column.setSpacing(px(8))
        self._headline.setSpacing(px(4))
        if self._speed.text() != DASH:
            self._speed.setMinimumWidth(self._number_width())
        # Both stand on one baseline although their descents differ.
        lift = round(metrics(BIG, bold=True).descent() - metrics(CONTROL).descent())
        self._unit.setContentsMargins(0, 0, 0, lift)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = self.appearance.theme
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(theme.color("line"))
        painter.setBrush(theme.color("surface"))
        radius = self.appearance.px(8)
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
