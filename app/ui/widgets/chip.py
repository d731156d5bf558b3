"""The chip of the header: the pair, a dot for its state, and the one fact that matters now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QEnterEvent, QFontMetricsF, QPainter, QPaintEvent, QPolygonF
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from app.ui.theme import LABEL, Appearance

_MARGIN, _DOT, _GAP, _ARROW = 12, 8, 8, 20


class Dot(StrEnum):
    """The state of the pair, as a shape: a disc, a half disc, a ring, a triangle."""

    ready = "ready"
    working = "working"
    none = "none"
    problem = "problem"


@dataclass(frozen=True)
class PairSummary:
    """What the chip says. An empty draft means that nothing drafts."""

    dot: Dot
    target: str
    draft: str
    fact: str

    def __str__(self) -> str:
        pair = f"{self.target}, drafted by {self.draft}" if self.draft else self.target
        return f"{pair}: {self.fact}"


class PairChip(QAbstractButton):
    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._summary = PairSummary(Dot.none, "No model", "", "choose one")
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        appearance.changed.connect(self.updateGeometry)
        appearance.changed.connect(self.update)
        self.set_summary(self._summary)

    @property
    def summary(self) -> PairSummary:
        return self._summary

    def set_summary(self, summary: PairSummary) -> None:
        self._summary = summary
        self.setAccessibleName(f"Models. {summary}")
        self.setToolTip(f"{summary}\nClick to choose models (Ctrl+O)")
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        px, metrics, s = self._appearance.px, self._metrics(), self._summary
        width = px(2 * _MARGIN + _DOT + _GAP) + metrics.horizontalAdvance(s.target)
        if s.draft:
            width += px(_ARROW) + metrics.horizontalAdvance(s.draft)
        if s.fact:
            width += px(2 * _GAP) + metrics.horizontalAdvance(s.fact)
        return QSize(round(width) + 2, px(26))

    def minimumSizeHint(self) -> QSize:
        return QSize(self._appearance.px(120), self.sizeHint().height())

    def enterEvent(self, event: QEnterEvent) -> None:
        self.update()
        super().enterEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px, s = self._appearance.theme, self._appearance.px, self._summary
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(theme.color("accent" if self.hasFocus() else "line"))
        painter.setBrush(theme.color("surface"))
        painter.drawRoundedRect(rect, rect.height() / 2, rect.height() / 2)
        self._draw_dot(painter, QRectF(px(_MARGIN), (self.height() - px(_DOT)) / 2, px(_DOT), px(_DOT)))

        painter.setFont(self._appearance.font(LABEL))
        metrics = self._metrics()
        x = float(px(_MARGIN + _DOT + _GAP))
        room = self.width() - x - px(_MARGIN)
        fact_width = metrics.horizontalAdvance(s.fact) + px(2 * _GAP) if s.fact else 0.0
        names = max(0.0, room - fact_width - (px(_ARROW) if s.draft else 0))
        draft_width = min(
            metrics.horizontalAdvance(s.draft), max(names / 2, names - metrics.horizontalAdvance(s.target))
        )
        x = self._draw_text(painter, metrics, s.target, x, names - draft_width, "text" if self.underMouse() else "soft")
        if s.draft:
            self._draw_arrow(painter, QPointF(x + px(_ARROW) / 2, self.height() / 2))
            token = "text" if self.underMouse() else "soft"
            x = self._draw_text(painter, metrics, s.draft, x + px(_ARROW), draft_width, token)
        token = {Dot.problem: "error", Dot.none: "accent"}.get(s.dot, "soft")
        self._draw_text(painter, metrics, s.fact, x + px(2 * _GAP), self.width() - x - px(2 * _GAP + _MARGIN), token)

    def _draw_text(
        self, painter: QPainter, metrics: QFontMetricsF, text: str, x: float, room: float, token: str
    ) -> float:
        """Draw the text, shortened in its middle if it must be, and return where it ends."""
        shown = metrics.elidedText(text, Qt.TextElideMode.ElideMiddle, room + 1)
        painter.setPen(self._appearance.theme.color(token))
        box = QRectF(x, 0, room + 2, self.height())
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, shown)
        return x + min(room, metrics.horizontalAdvance(shown))

    def _draw_arrow(self, painter: QPainter, center: QPointF) -> None:
        """The draft runs ahead of the target: an arrowhead pointing at it."""
        size = self._appearance.px(3)
        points = [QPointF(size, -size), QPointF(-size, 0), QPointF(size, size)]
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._appearance.theme.color("soft"))
        painter.drawPolygon(QPolygonF([center + point for point in points]))

    def _draw_dot(self, painter: QPainter, rect: QRectF) -> None:
        theme = self._appearance.theme
        dot = self._summary.dot
        color = theme.color({Dot.problem: "error", Dot.none: "plain"}.get(dot, "draft"))
        painter.setPen(color)
        painter.setBrush(color if dot in (Dot.ready, Dot.problem) else Qt.BrushStyle.NoBrush)
        if dot is Dot.problem:
            painter.drawPolygon(
                QPolygonF([QPointF(rect.center().x(), rect.top()), rect.bottomRight(), rect.bottomLeft()])
            )
            return
        painter.drawEllipse(rect)
        if dot is Dot.working:
            painter.setBrush(color)
            painter.drawPie(rect, 90 * 16, 180 * 16)

    def _metrics(self) -> QFontMetricsF:
        return self._appearance.metrics(LABEL)
