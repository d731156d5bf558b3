"""Every colour can be read on every ground it stands on, in both themes."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from app.engine.rounds import DrafterKind, TokenSource
from app.ui.style import stylesheet
from app.ui.theme import COLOR_TOKENS, DARK, LIGHT, Appearance, Theme, ThemeMode

GROUNDS = ("ground", "side", "surface", "accent_ground", "own_message")
TEXTS = {
    "text": GROUNDS,
    "soft": GROUNDS,
    "faint": ("ground", "side", "surface"),
    "accent": GROUNDS,
    "on_accent": ("accent",),
    "warning": ("ground", "surface", "side"),
    "error": ("ground", "surface", "side"),
}
SHAPES = ("draft", "lookup", "recovered", "bonus", "plain")
BOTH = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


def luminance(color: QColor) -> float:
    def linear(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue, _ = color.getRgbF()
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)


def contrast(one: QColor, other: QColor) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def blend(top: QColor, ground: QColor) -> QColor:
    alpha = top.alphaF()
    channels = zip(top.getRgbF()[:3], ground.getRgbF()[:3], strict=True)
    return QColor.fromRgbF(*(a * alpha + b * (1 - alpha) for a, b in channels))


def test_the_measure_knows_its_extremes() -> None:
    assert contrast(QColor("#000000"), QColor("#ffffff")) == pytest.approx(21)
    assert contrast(QColor("#777777"), QColor("#777777")) == 1


@BOTH
@pytest.mark.parametrize("token", TEXTS)
def test_text_reaches_4_5(theme: Theme, token: str) -> None:
    for ground in TEXTS[token]:
        assert contrast(theme.color(token), theme.color(ground)) >= 4.5, f"{token} on {ground}"


@BOTH
@pytest.mark.parametrize("token", SHAPES)
def test_shapes_reach_3(theme: Theme, token: str) -> None:
    for ground in ("ground", "side", "surface"):
        assert contrast(theme.color(token), theme.color(ground)) >= 3, f"{token} on {ground}"


@BOTH
@pytest.mark.parametrize("drafter", [DrafterKind.model, DrafterKind.lookup])
@pytest.mark.parametrize("source", TokenSource)
def test_text_can_be_read_on_the_tint_of_every_source(theme: Theme, source: TokenSource, drafter: DrafterKind) -> None:
    tint = blend(theme.source_tint(source, drafter), theme.color("ground"))
    assert contrast(theme.color("text"), tint) >= 4.5


@BOTH
def test_every_token_is_a_colour(theme: Theme) -> None:
    for token in COLOR_TOKENS:
        assert QColor.isValidColorName(getattr(theme, token)), token


def test_accepted_lookup_is_apart_from_an_accepted_draft() -> None:
    assert LIGHT.source_token(TokenSource.draft, DrafterKind.lookup) == "lookup"
    assert LIGHT.source_token(TokenSource.draft, DrafterKind.model) == "draft"
    assert LIGHT.source_token(TokenSource.recovered, DrafterKind.lookup) == "recovered"


def test_mode_and_zoom_change_everything_that_is_built_from_them(qtbot: QtBot) -> None:
    appearance = Appearance(ThemeMode.light)
    before = stylesheet(appearance)
    with qtbot.waitSignal(appearance.changed):
        appearance.set_mode(ThemeMode.dark)
    assert appearance.theme is DARK
    assert LIGHT.surface not in stylesheet(appearance)
    with qtbot.waitSignal(appearance.changed):
        appearance.set_zoom(5)
    assert appearance.zoom == 2
    assert appearance.px(12) == 24
    assert stylesheet(appearance) != before
