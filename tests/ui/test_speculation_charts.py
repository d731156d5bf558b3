"""The panel's parts: its arithmetic, and that its shapes differ and stand where they should."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QObject, QRectF, Qt
from PySide6.QtGui import QImage, QPainter

from app.engine.protocol import MAX_DRAFT_LENGTH
from app.engine.rounds import DrafterKind
from app.ui.speculation.charts import FEW_TESTS, PositionChart
from app.ui.speculation.marks import Mark, draw_mark, marks_of
from app.ui.speculation.measures import (
    DASH,
    SpeedMeter,
    factor_texts,
    ms_texts,
    position_count,
    scale_above,
    speed_text,
    typical_length,
)
from app.ui.speculation.rounds_strip import RoundsStrip, round_html, round_lines
from app.ui.theme import LIGHT, Appearance, ThemeMode
from tests.support.rounds import make_round


@pytest.fixture
def appearance(qapp: QObject) -> Appearance:
    return Appearance(ThemeMode.light)


# -- numbers ------------------------------------------------------------------------------------------------------


def test_speed_is_that_of_the_last_two_seconds() -> None:
    meter = SpeedMeter()
    for i in range(31):  # 3 s at 2 tokens per 0.1 s
        meter.add(2, i * 0.1)
    for i in range(1, 31):  # 3 s at 5 tokens per 0.1 s: the slow rounds have left the window
        meter.add(5, 3.0 + i * 0.1)
    assert meter.current(6.0) == pytest.approx(50)
    assert meter.average() == pytest.approx((30 * 2 + 30 * 5) / 6)


def test_speed_is_unknown_before_it_can_be_told_and_after_a_stall() -> None:
    meter = SpeedMeter()
    assert meter.current(0.0) is None
    assert meter.average() is None
    meter.add(4, 0.0)
    assert meter.current(0.0) is None
    meter.add(4, 0.001)  # handed over together: no speed of 4,000
    assert meter.current(0.001) is None
    meter.add(4, 0.5)
    assert meter.current(0.5) == pytest.approx(16)
    assert meter.current(60.0) is None


def test_speed_of_rounds_slower_than_the_window() -> None:
    meter = SpeedMeter()
    for i in range(4):
        meter.add(1, i * 3.0)
    assert meter.current(9.0) == pytest.approx(1 / 3)
    assert meter.current(11.9) == pytest.approx(1 / 3)


def test_number_formats() -> None:
    assert [speed_text(v) for v in (None, 0.44, 48.23, 148.2)] == [DASH, "0.4", "48.2", "148"]
    assert ms_texts(0.015, 0.051, 0.004) == ["15", "51", "4"]
    assert ms_texts(0.0011, 0.0049, 0.0002) == ["1.1", "4.9", "0.2"]
    assert ms_texts(None, 0.051, 0.004) == [DASH, "51", "4"]
    assert factor_texts(48.2, 27.7) == ("1.74×", "faster")
    assert factor_texts(20.0, 25.0) == ("0.80×", "slower")
    assert factor_texts(25.02, 25.0) == ("1.00×", "as fast")
    assert [scale_above(v) for v in (0, 10, 10.1, 48, 51, 499)] == [10, 10, 20, 50, 100, 500]
    assert [position_count(n) for n in (0, 3, 4, 5, MAX_DRAFT_LENGTH)] == [4, 4, 4, 8, 16]
    assert typical_length([3, 3, 0, 0, 0, 8]) == 3
    assert typical_length([0, 0]) is None


# -- shapes -------------------------------------------------------------------------------------------------------


def test_marks_of_a_round_from_bottom_to_top() -> None:
    draft, recovered, rejected = Mark.draft, Mark.recovered, Mark.rejected
    assert marks_of(make_round(0, 2, 2)) == (draft, draft, recovered, rejected, rejected)
    assert marks_of(make_round(0, 2)) == (draft, draft, Mark.bonus)
    assert marks_of(make_round(0, 1, drafter=DrafterKind.lookup)) == (Mark.lookup, Mark.bonus)
    assert marks_of(make_round(0, 0)) == (Mark.plain,)
    assert marks_of(make_round(0, 1, discarded=2)) == (draft,)


def test_marks_differ_in_shape_alone(qapp: QObject) -> None:
    one_color = replace(LIGHT, **dict.fromkeys(("draft", "lookup", "recovered", "bonus", "plain"), "#000000"))
    shapes = set()
    for mark in Mark:
        image = QImage(12, 12, QImage.Format.Format_ARGB32)
        image.fill(Qt.GlobalColor.transparent)
        painter = QPainter(image)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        draw_mark(painter, mark, QRectF(1, 1, 9, 9), one_color)
        painter.end()
        # Empty, lightly filled or full: three steps that stay apart without any colour.
        shapes.add(tuple(image.pixelColor(x, y).alpha() // 86 for x in range(12) for y in range(12)))
    assert len(shapes) == len(Mark)


def test_strip_paints_each_source_in_its_place(qtbot, appearance: Appearance) -> None:
    strip = RoundsStrip(appearance)
    qtbot.addWidget(strip)
    strip.resize(280, 100)
    strip.add(make_round(0, 2, 1))
    strip.add(make_round(1, 1, drafter=DrafterKind.lookup))
    strip.add(make_round(2, 0))
    strip.show_arrived()
    image = strip.grab().toImage()
    theme = appearance.theme
    ground = image.pixelColor(279, 50)

    def center(column: int, row: int) -> str:
        point = strip.boxes(column)[row][1].center()
        return image.pixelColor(int(point.x()), int(point.y())).name().upper()

    assert [mark for mark, _ in strip.boxes(0)] == [Mark.draft, Mark.draft, Mark.recovered, Mark.rejected]
    assert center(0, 0) == center(0, 1) == theme.draft
    assert center(0, 2) == theme.recovered
    assert center(0, 3) == ground.name().upper()  # an empty outline
    assert center(1, 0) == ground.name().upper()  # the dot of a lookup token
    assert center(1, 1) == theme.bonus
    lookup = strip.boxes(1)[0][1]
    assert image.pixelColor(int(lookup.left()) + 1, int(lookup.center().y())).name().upper() == theme.lookup
    assert center(2, 0) not in (theme.plain, ground.name().upper())  # a plain token is outlined and lightly filled
    plain = strip.boxes(2)[0][1]
    assert image.pixelColor(int(plain.left()), int(plain.center().y())).name().upper() == theme.plain


@pytest.mark.parametrize("drafted", [3, MAX_DRAFT_LENGTH])
def test_strip_columns_fit_whatever_the_draft_length(qtbot, appearance: Appearance, drafted: int) -> None:
    strip = RoundsStrip(appearance)
    qtbot.addWidget(strip)
    strip.resize(280, 100)
    for i in range(100):
        strip.add(make_round(i, drafted))
    strip.show_arrived()
    assert strip.columns[-1].number == 99
    last = len(strip.columns) - 1
    assert 20 <= last < 30
    boxes = [box for _, box in strip.boxes(last)]
    assert len(boxes) == drafted + 1
    assert all(QRectF(strip.rect()).contains(box) for box in boxes)
    assert all(upper.bottom() < lower.top() for lower, upper in pairwise(boxes))


def test_bars_are_lighter_where_few_drafts_were_tested(qtbot, appearance: Appearance) -> None:
    chart = PositionChart(appearance)
    qtbot.addWidget(chart)
    chart.resize(280, 104)
    chart.set_values([0.9, 0.9, 0.0, None], [FEW_TESTS, FEW_TESTS - 1, 1, 0], "draft")
    image = chart.grab().toImage()

    def center(i: int) -> str:
        return image.pixelColor(chart.bar(i).center().toPoint()).name().upper()

    assert center(0) == appearance.theme.draft
    assert center(1) != center(0)
    assert chart.bar(2).height() > 0 == chart.bar(3).height()  # a known nothing is drawn, an unknown is not
    assert "few so far" in chart.description()
    assert chart.description().endswith("no draft was this long yet")


def test_round_in_words() -> None:
    lines = round_lines(make_round(4, 1, 1, text=" <b>\n"))
    assert lines == [
        "Round 5: 2 drafted, 1 accepted, 1 rejected",
        "draft: ␣<b>⏎",
        "recovered: ␣<b>⏎",
        "rejected: ␣<b>⏎",
        "draft 15, verify 51, rest 4 ms",
    ]
    assert round_html(make_round(4, 1, text="<b>")).count("&lt;b&gt;") == 2
    assert round_lines(make_round(0, 0))[0] == "Round 1: no draft"
