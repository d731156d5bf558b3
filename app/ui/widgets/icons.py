"""The few icons of the window, drawn as strokes on a grid of 24 units."""

from __future__ import annotations

from enum import StrEnum

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen

from app.ui.theme import Theme

STROKE = 1.75  # units of the grid


class Icon(StrEnum):
    plus = "plus"
    close = "close"
    sidebar = "sidebar"
    panel = "panel"
    colors = "colors"
    models = "models"
    settings = "settings"
    info = "info"
    warning = "warning"
    error = "error"
    check = "check"


def draw_icon(painter: QPainter, icon: Icon, rect: QRectF, color: QColor) -> None:
    """Draw the icon into the largest square in the middle of `rect`."""
    side = min(rect.width(), rect.height())
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.translate(rect.center().x() - side / 2, rect.center().y() - side / 2)
    painter.scale(side / 24, side / 24)
    painter.setPen(QPen(color, STROKE, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap, Qt.PenJoinStyle.RoundJoin))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPath(_path(icon))
    painter.restore()


def draw_mark(painter: QPainter, rect: QRectF, theme: Theme) -> None:
    """Three arrowheads, one behind the other, each lighter than the one in front: draft following target."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    height = rect.height()
    width = height * 0.74
    step = (rect.width() - width) / 2
    for index, alpha in enumerate((0.3, 0.55, 1.0)):
        left = rect.left() + index * step
        head = QPainterPath(QPointF(left, rect.top()))
        head.lineTo(left + width, rect.center().y())
        head.lineTo(left, rect.bottom())
        head.closeSubpath()
        painter.setBrush(theme.color("side"))  # an arrowhead covers the one behind it
        painter.drawPath(head)
        painter.setBrush(theme.color("accent", alpha))
        painter.drawPath(head)
    painter.restore()


def _path(icon: Icon) -> QPainterPath:
    path = QPainterPath()
    match icon:
        case Icon.plus:
            _lines(path, (12, 5, 12, 19), (5, 12, 19, 12))
        case Icon.close:
            _lines(path, (6.5, 6.5, 17.5, 17.5), (17.5, 6.5, 6.5, 17.5))
        case Icon.check:
            _lines(path, (5, 12.5, 10, 17.5, 19, 7))
        case Icon.sidebar:
            path.addRoundedRect(QRectF(3, 4, 18, 16), 3, 3)
            _lines(path, (9, 4, 9, 20))
        case Icon.panel:
            path.addRoundedRect(QRectF(3, 4, 18, 16), 3, 3)
            _lines(path, (15, 4, 15, 20))
        case Icon.colors:  # a line of text with tinted words under it
            _lines(path, (4, 6, 20, 6))
            path.addRoundedRect(QRectF(3.5, 10, 9, 4), 1.5, 1.5)
            path.addRoundedRect(QRectF(15.5, 10, 5, 4), 1.5, 1.5)
            _lines(path, (4, 18, 13, 18))
        case Icon.models:  # a box seen from above one corner
            _lines(path, (12, 3, 20, 7.5, 20, 16.5, 12, 21, 4, 16.5, 4, 7.5, 12, 3))
            _lines(path, (4.3, 7.7, 12, 12, 19.7, 7.7), (12, 12, 12, 20.7))
        case Icon.settings:  # two sliders
            _lines(path, (4, 8, 12, 8), (17, 8, 20, 8), (4, 16, 7, 16), (12, 16, 20, 16))
            path.addEllipse(QPointF(14.5, 8), 2.5, 2.5)
            path.addEllipse(QPointF(9.5, 16), 2.5, 2.5)
        case Icon.info:
            path.addEllipse(QPointF(12, 12), 9, 9)
            _lines(path, (12, 11, 12, 16.5), (12, 7.6, 12, 7.7))
        case Icon.warning:
            _lines(path, (12, 4, 21, 19.5, 3, 19.5, 12, 4), (12, 10, 12, 14), (12, 16.7, 12, 16.8))
        case Icon.error:
            _lines(path, (8.2, 3, 15.8, 3, 21, 8.2, 21, 15.8, 15.8, 21, 8.2, 21, 3, 15.8, 3, 8.2, 8.2, 3))
            _lines(path, (12, 7.5, 12, 12.5), (12, 16.3, 12, 16.4))
    return path


def _lines(path: QPainterPath, *lines: tuple[float, ...]) -> None:
    for points in lines:
        path.moveTo(points[0], points[1])
        for x, y in zip(points[2::2], points[3::2], strict=True):
            path.lineTo(x, y)
