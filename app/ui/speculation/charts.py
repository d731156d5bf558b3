"""The panel's charts, painted by hand: acceptance by position, the two speeds, and the parts of a round's time.

A chart is given numbers, and repaints only when its owner hands it new ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.engine.rounds import RoundTimes
from app.ui.speculation.measures import DASH, ms_texts, percent_text, position_count, scale_above, speed_text
from app.ui.theme import HINT, Appearance

FEW_TESTS = 20  # below it a bar is drawn lighter: its height is still mostly chance

_CENTER = Qt.AlignmentFlag.AlignCenter
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class Chart(QWidget):
    """A widget of a fixed height that follows theme and zoom."""

    def __init__(self, appearance: Appearance, name: str, height: int) -> None:
        super().__init__()
        self.appearance = appearance
        self._height = height
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        appearance.changed.connect(self._on_appearance_changed)

    def sizeHint(self) -> QSize:
        return QSize(self.appearance.px(200), self.appearance.px(self._height))

    def minimumSizeHint(self) -> QSize:
        return QSize(self.appearance.px(120), self.appearance.px(self._height))

    def describe(self) -> None:
        """Put the numbers of now into words for a screen reader."""
        self.setAccessibleDescription(self.description())

    def description(self) -> str:
        raise NotImplementedError

    def _on_appearance_changed(self) -> None:
        self.updateGeometry()
        self.update()


class PositionChart(Chart):
    """One bar per draft position: how often the drafts that reached it were accepted up to it."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance, "Acceptance by position", 104)
        self._acceptance: Sequence[float | None] = ()
        self._tested: Sequence[int] = ()
        self._positions = position_count(0)
        self._token = "draft"
        self.describe()

    @property
    def positions(self) -> int:
        return self._positions

    def clear(self) -> None:
        self._acceptance, self._tested = (), ()
        self._positions = position_count(0)
        self.update()

    def reserve(self, draft_length: int) -> None:
        """Make room for drafts of this length; the room only grows until the chart is cleared."""
        self._positions = max(self._positions, position_count(draft_length))
        self.update()

    def set_values(self, acceptance: Sequence[float | None], tested: Sequence[int], token: str) -> None:
        """`token` is the theme's colour of the drafter."""
        self._acceptance, self._tested, self._token = tuple(acceptance), tuple(tested), token
        self.reserve(len(tested))

    def value_at(self, position: int) -> float | None:
        return self._acceptance[position] if position < len(self._acceptance) else None

    def description(self) -> str:
        if not self._tested:
            return "No draft token tested yet."
        return "; ".join(self._sentence(i) for i in range(len(self._tested)))

    def _sentence(self, i: int) -> str:
        share = self.value_at(i)
        if share is None:
            return f"Position {i + 1}: no draft was this long yet"
        few = ", few so far" if self._tested[i] < FEW_TESTS else ""
        return f"Position {i + 1}: {percent_text(share)} of {self._tested[i]} drafts{few}"

    def bar(self, i: int) -> QRectF:
        """Where the bar of a position stands; empty where nothing was tested."""
        px = self.appearance.px
        slot = self.width() / self._positions
        bottom, room = self.height() - px(20), self.height() - px(40)
        share = self.value_at(i)
        height = 0.0 if share is None else max(px(2), share * room)  # a known 0 % is a stub, unlike an unknown
        gap = min(px(8), slot / 4)
        left, right = round(i * slot + gap / 2), round((i + 1) * slot - gap / 2)
        return QRectF(left, bottom - height, right - left, height)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            i = min(self._positions - 1, max(0, int(event.pos().x() * self._positions / self.width())))
            slot = self.width() // self._positions
            area = QRect(i * slot, 0, slot, self.height())
            QToolTip.showText(event.globalPos(), self._sentence(i), self, area)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self.appearance.theme, self.appearance.px
        font = self.appearance.font(HINT, tabular=True)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font)
        slot = self.width() / self._positions
        has_room = painter.fontMetrics().horizontalAdvance("100") <= slot
        bottom = self.height() - px(20)
        for i in range(self._positions):
            bar, share = self.bar(i), self.value_at(i)
            column = QRectF(i * slot, 0, slot, self.height())
            if share is not None:
                few = self._tested[i] < FEW_TESTS
                color = theme.color(self._token)
                # The outline keeps a light bar visible against the ground.
                painter.setPen(QPen(color, 1) if few else Qt.PenStyle.NoPen)
                painter.setBrush(theme.color(self._token, 0.4) if few else color)
                inset = 0.5 if few else 0.0
                painter.drawRoundedRect(bar.adjusted(inset, inset, -inset, -inset), 2, 2)
            if share is None or has_room:
                painter.setPen(theme.color("faint" if share is None else "soft"))
                text = DASH if share is None else f"{share * 100:.0f}"
                painter.drawText(QRectF(column.left(), bar.top() - px(18), slot, px(16)), _CENTER, text)
            painter.setPen(theme.color("faint"))
            painter.drawText(QRectF(column.left(), bottom + px(4), slot, px(16)), _CENTER, str(i + 1))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setPen(theme.color("line"))
        painter.drawLine(QPoint(0, bottom), QPoint(self.width(), bottom))


class SpeedBars(Chart):
    """The speed of now above the measured speed without a draft, on one scale that only grows within an answer."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance, "Speed", 40)
        self._rows: tuple[tuple[str, float | None, str], ...] = ()
        self._scale = 0.0
        self.set_speeds(None, None)
        self.describe()

    def clear(self) -> None:
        self._scale = 0.0

    def set_speeds(self, now: float | None, plain: float | None, now_name: str = "now") -> None:
        self._rows = ((now_name, now, "accent"), ("without a draft", plain, "plain"))
        self._scale = max(self._scale, scale_above(max(now or 0.0, plain or 0.0)))
        self.update()

    def description(self) -> str:
        return ", ".join(f"{name} {speed_text(speed)} tokens a second" for name, speed, _ in self._rows)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self.appearance.theme, self.appearance.px
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self.appearance.font(HINT))
        # A fixed share for the words, so that both bars are measured on the same length.
        words = max(painter.fontMetrics().horizontalAdvance(name) for name, _, _ in self._rows)
        words = max(words, painter.fontMetrics().horizontalAdvance("without a draft"))
        length = self.width() - words - px(12)
        row = self.height() / 2
        for i, (name, speed, token) in enumerate(self._rows):
            line = QRectF(0, i * row, self.width(), row)
            painter.setPen(theme.color("soft"))
            painter.drawText(line, _RIGHT, name)
            if speed is None:
                painter.setPen(theme.color("faint"))
                painter.drawText(line, _LEFT, DASH)
                continue
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color(token))
            thick = px(8)
            width = max(thick, length * min(1.0, speed / self._scale))
            painter.drawRoundedRect(QRectF(0, line.center().y() - thick / 2, width, thick), thick / 2, thick / 2)


class TimeBar(Chart):
    """What a round's time goes into: one stacked bar and the same in words, in the same order."""

    _TOKENS = ("lookup", "accent", "plain")
    _NAMES = ("draft", "verify", "rest")

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance, "Time of a round", 36)
        self._parts: tuple[float | None, ...] = (None, None, None)  # seconds
        self.describe()

    def set_times(self, times: RoundTimes | None, *, has_draft: bool = True) -> None:
        """The mean times of a round; without any draft, drafting has no time to speak of."""
        if times is None:
            self._parts = (None, None, None)
        else:
            self._parts = (times.draft if has_draft else None, times.verify, times.sample)
        self.update()

    @property
    def words(self) -> tuple[str, ...]:
        draft, verify, rest = ms_texts(*self._parts)
        return f"draft {draft}", f"verify {verify}", f"rest {rest}{'' if rest == DASH else ' ms'}"

    def description(self) -> str:
        if self._parts[1] is None:
            return "No round yet."
        return ", ".join(
            f"{name} {text} milliseconds"
            for name, text in zip(self._NAMES, ms_texts(*self._parts), strict=True)
            if text != DASH
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, px = self.appearance.theme, self.appearance.px
        painter = QPainter(self)
        painter.setFont(self.appearance.font(HINT, tabular=True))
        painter.setPen(Qt.PenStyle.NoPen)
        total = sum(part or 0.0 for part in self._parts)
        bar = QRect(0, 0, self.width(), px(12))
        if total <= 0:
            painter.fillRect(bar, theme.color("line"))
        left, begin = 0.0, 0
        for part, token in zip(self._parts, self._TOKENS, strict=True):
            if not part:
                continue
            left += part / total * bar.width()
            end = round(left)
            gap = px(2) if end < bar.width() else 0  # a notch, so that the parts are told apart without colour
            painter.fillRect(QRect(begin, 0, max(1, end - begin - gap), bar.height()), theme.color(token))
            begin = end
        third, swatch = self.width() / 3, px(8)
        for i, (text, token) in enumerate(zip(self.words, self._TOKENS, strict=True)):
            line = QRectF(round(i * third), px(20), third, px(16))
            painter.fillRect(
                QRectF(line.left(), line.center().y() - swatch / 2, swatch, swatch).toRect(), theme.color(token)
            )
            painter.setPen(theme.color("soft"))
            painter.drawText(line.adjusted(swatch + px(4), 0, 0, 0), _LEFT, text)
