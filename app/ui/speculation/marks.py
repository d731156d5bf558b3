"""The small shapes that stand for tokens. Every source has a shape of its own, so that colour is never alone."""

from __future__ import annotations

from enum import StrEnum

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen, QPolygonF

from app.engine.rounds import DrafterKind, Round, TokenSource
from app.ui.theme import Theme


class Mark(StrEnum):
    """In the order of the legend. All but `rejected` stand for a token of the answer."""

    draft = "draft"
    lookup = "lookup"
    recovered = "recovered"
    bonus = "bonus"
    plain = "plain"
    rejected = "rejected"


def mark_of(source: TokenSource, drafter: DrafterKind) -> Mark:
    if source is TokenSource.draft and drafter is DrafterKind.lookup:
        return Mark.lookup
    return Mark(source.value)


def marks_of(r: Round) -> tuple[Mark, ...]:
    """A round from bottom to top. Discarded draft tokens have no verdict, hence no mark."""
    kept = tuple(mark_of(token.source, r.drafter) for token in r.tokens)
    return kept + (Mark.rejected,) * r.rejected


def draw_mark(painter: QPainter, mark: Mark, box: QRectF, theme: Theme) -> None:
    """Draw one mark into `box`. The painter's pen and brush are left changed."""
    # Rejected draft tokens have no colour of their own: an outline in the quietest one.
    color = theme.color("plain" if mark is Mark.rejected else mark.value)
    if mark in (Mark.plain, Mark.rejected):
        inset = box.adjusted(0.5, 0.5, -0.5, -0.5)  # pens straddle the edge
        painter.setPen(QPen(color, 1))
        if mark is Mark.plain:
            painter.setBrush(theme.color("plain", 0.35))
            painter.drawRect(inset)
        else:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            radius = min(box.width(), box.height()) / 4
            painter.drawRoundedRect(inset, radius, radius)
        return
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(color)
    match mark:
        case Mark.draft:
            painter.drawRoundedRect(box, 1.5, 1.5)
        case Mark.lookup:
            painter.drawPath(_square_with_dot(box))
        case Mark.recovered:
            middle = QPointF(box.center().x(), box.top())
            painter.drawPolygon(QPolygonF([box.bottomLeft(), middle, box.bottomRight()]))
        case Mark.bonus:
            painter.drawEllipse(box)


def _square_with_dot(box: QRectF) -> QPainterPath:
    path = QPainterPath()
    path.setFillRule(Qt.FillRule.OddEvenFill)
    path.addRoundedRect(box, 1.5, 1.5)
    radius = min(box.width(), box.height()) * 0.2
    path.addEllipse(box.center(), radius, radius)
    return path
