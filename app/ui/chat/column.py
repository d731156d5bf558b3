"""Where the column of text stands: the same place in the transcript and in the composer."""

from __future__ import annotations

from app.ui.theme import Appearance

WIDTH = 720  # of text, at zoom 1
MARGIN = 24  # at least, on either side
TEXT_LINE = 24  # 15 px text at a line height of 1.6


def column(appearance: Appearance, available: int) -> tuple[int, int]:
    """Left edge and width of the column in a widget `available` pixels wide."""
    margin = min(appearance.px(MARGIN), available // 8)
    width = max(1, min(appearance.px(WIDTH), available - 2 * margin))
    return (available - width) // 2, width
