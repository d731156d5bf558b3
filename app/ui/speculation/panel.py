"""The speculation panel: shows live how well the draft is doing, from the rounds of the answer and nothing else."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable
from enum import StrEnum

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QHideEvent, QPalette, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.engine.protocol import Timing
from app.engine.rounds import DrafterKind, Round, TokenSource
from app.engine.stats import SpeculationStats
from app.ui.speculation.by_drafter import ByDrafter
from app.ui.speculation.charts import PositionChart, TimeBar
from app.ui.speculation.labels import Chip, NamedValue, Words, explain
from app.ui.speculation.measures import (
    DASH,
    PlainTime,
    SpeedMeter,
    length_text,
    mean_times,
    ms_texts,
    percent_text,
    typical_length,
)
from app.ui.speculation.pulse import Pulse
from app.ui.speculation.rounds_strip import RoundsLegend, RoundsStrip
from app.ui.speculation.speed_card import SpeedCard
from app.ui.theme import HINT, TEXT, Appearance

TEXT_MS = 250  # texts change at most 4 times a second
CHART_MS = 100  # and charts 10 times
RECENT_ROUNDS = 16  # the draft length in the chip is the usual one among these


class PanelState(StrEnum):
    """What drafting is doing, as the chip says it."""

    off = "off"
    loading = "loading"
    idle = "idle"
    on = "on"
    paused = "paused"
    failed = "failed"


_CHIP_WORDS = {
    PanelState.off: "Off",
    PanelState.loading: "Loading",
    PanelState.idle: "Ready",
    PanelState.on: "On",
    PanelState.paused: "Paused",
    PanelState.failed: "Failed",
}
_CHIP_COLORS = {  # text, ground
    PanelState.off: ("soft", "surface"),
    PanelState.loading: ("soft", "surface"),
    PanelState.idle: ("accent", "accent_ground"),
    PanelState.on: ("accent", "accent_ground"),
    PanelState.paused: ("soft", "surface"),
    PanelState.failed: ("error", "surface"),
}
_EXPLANATIONS = {
    "Draft acceptance rate": (
        "How much of what was drafted the target kept: accepted draft tokens divided by drafted minus discarded ones."
    ),
    "Token acceptance probability": (
        "How likely the target accepts the next draft token when it kept all before it: "
        "accepted draft tokens divided by accepted ones plus the rounds ended by a rejection."
    ),
    "Mean acceptance length": (
        "How many tokens a round with a draft brings: one plus accepted draft tokens divided by rounds with a draft."
    ),
    "Acceptance by position": (
        "How often the target kept a draft up to each place: rounds that accepted at least so many draft tokens "
        "divided by rounds whose draft was at least so long."
    ),
    "Rounds": "One column is one draft, one pass of the target and what came of it; the newest is on the right.",
    "Time of a round": "The mean over the rounds of this answer: drafting, the target's pass, and everything else.",
}


class SpeculationPanel(QWidget):
    """Counts every round at once, but repaints by two pulses that beat only while there is something new."""

    def __init__(
        self,
        appearance: Appearance,
        parent: QWidget | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(parent)
        self.appearance = appearance
        self._clock = clock
        self._state = PanelState.off
        self._draft_length: int | None = None
        self._typical_length: float | None = None
        self._drafter = DrafterKind.model
        self._plain_speed: float | None = None
        self._pacing_texts = ("", "")  # the sentence, and what it goes by
        self._is_answering = False
        self._average: float | None = None
        self._stats = SpeculationStats()
        self._stats_of: defaultdict[DrafterKind, SpeculationStats] = defaultdict(SpeculationStats)
        self._speed = SpeedMeter()
        self._plain_time = PlainTime()
        self._recent_lengths: deque[int] = deque(maxlen=RECENT_ROUNDS)
        self._text_pulse = Pulse(TEXT_MS, self._refresh_text, self)
        self._chart_pulse = Pulse(CHART_MS, self._refresh_charts, self)
        self._build()
        self._apply_appearance()
        appearance.changed.connect(self._apply_appearance)
        self.set_state(PanelState.off, "No model is loaded.")
        self._refresh()

    # -- what the window tells ------------------------------------------------------------------------------------

    def set_state(self, state: PanelState, sentence: str, draft_length: int | None = None) -> None:
        """`draft_length` is the one that was set, if one was; otherwise the chip names the usual one."""
        self._state = state
        self._draft_length = draft_length
        self._sentence.setText(sentence)
        self._hold_place()
        token, ground = _CHIP_COLORS[state]
        self._chip.set_colors(token=token, ground=ground)
        self._positions.reserve(draft_length or 0)
        self._refresh_chip()

    def set_plain_speed(self, tokens_per_s: float | None) -> None:
        """The measured speed of this pair without a draft; None while nobody measured it."""
        if (tokens_per_s or None) != self._plain_speed:
            self._plain_speed = tokens_per_s or None
            self._refresh_soon()

    def set_typical_length(self, draft_tokens: float | None) -> None:
        """The usual draft length as pacing reports it; None or 0: it is told from the rounds."""
        if draft_tokens != self._typical_length:
            self._typical_length = draft_tokens
            self._refresh_soon()

    def set_pacing_sentence(self, sentence: str, explanation: str = "") -> None:
        if (sentence, explanation) != self._pacing_texts:
            self._pacing_texts = sentence, explanation
            self._refresh_soon()

    def begin_answer(self, drafter: DrafterKind) -> None:
        self._reset_counters()
        self._drafter = drafter
        self._is_answering = True
        self._by_drafter.setVisible(drafter is DrafterKind.chained)
        self._release_place()
        if drafter is DrafterKind.none and self._state in (PanelState.idle, PanelState.on):
            self.set_state(PanelState.off, "Off: this answer is made without a draft.")
        self._refresh()

    def observe(self, r: Round) -> None:
        """Count one round. Nothing is painted here: up to 200 of these come in a second."""
        self._stats.observe(r)
        self._stats_of[r.drafter].observe(r)
        self._speed.add(len(r.tokens), self._clock())
        if self._plain_speed:
            self._plain_time.add(len(r.tokens), self._plain_speed)
        self._strip.add(r)
        self._recent_lengths.append(r.drafted)
        if self.isVisible():
            self._text_pulse.start()
            self._chart_pulse.start()

    def finish_answer(self, timing: Timing | None) -> None:
        """`timing` is None when the engine could not tell, e.g. because it died; then what was seen here counts."""
        self._is_answering = False
        self._average = timing.tokens_per_s if timing else self._speed.average()
        self._refresh()

    def clear(self) -> None:
        """Forget the answer. State and plain speed belong to the pair and stay."""
        self._reset_counters()
        self._drafter = DrafterKind.model
        self._is_answering = False
        self._by_drafter.hide()
        self._typical_length = None
        self._pacing_texts = "", ""
        self._refresh()

    # -- refreshing -----------------------------------------------------------------------------------------------

    def _refresh_soon(self) -> None:
        """What pacing reports while an answer is written waits for the pulses, as the rounds do."""
        if not self._is_answering:
            self._refresh()
        elif self.isVisible():
            self._text_pulse.start()
            self._chart_pulse.start()

    def _reset_counters(self) -> None:
        self._stats = SpeculationStats()
        self._stats_of.clear()
        self._speed = SpeedMeter()
        self._plain_time = PlainTime()
        self._average = None
        self._recent_lengths.clear()
        self._strip.clear()
        self._positions.clear()
        self._positions.reserve(self._draft_length or 0)
        self._card.bars.clear()

    def _refresh(self) -> None:
        """Show what is known now, and let the pulses rest."""
        self._text_pulse.stop()
        self._chart_pulse.stop()
        self._refresh_charts()
        self._refresh_text()

    def _refresh_charts(self) -> None:
        stats = self._stats
        color = self.appearance.theme.source_token(TokenSource.draft, self._main_drafter)
        self._positions.set_values(stats.acceptance_at, stats.tested_at, color)
        self._strip.show_arrived()
        self._time_bar.set_times(mean_times(stats), has_draft=stats.rounds_with_draft > 0)
        is_over = not self._is_answering and stats.rounds > 0
        self._card.bars.set_speeds(self._shown_speed(), self._shown_plain_speed(), "average" if is_over else "now")

    def _refresh_text(self) -> None:
        stats = self._stats
        speed = self._shown_speed()
        self._card.show_text(speed, self._shown_plain_speed(), missing=self._missing_comparison(speed))
        self._rate.set_value(percent_text(stats.draft_acceptance_rate))
        self._probability.set_value(percent_text(stats.token_acceptance_probability))
        self._length.set_value(length_text(stats.mean_acceptance_length))
        self._by_drafter.set_rates(*(self._stats_of[kind].draft_acceptance_rate for kind in ByDrafter.KINDS))
        self._rounds.set_value(f"{stats.rounds:,} rounds, {stats.tokens:,} tokens" if stats.rounds else DASH)
        times = mean_times(stats)
        self._time.set_value(DASH if times is None else f"{ms_texts(times.total)[0]} ms")
        sentence, explanation = self._pacing_texts
        self._pacing.setText(sentence or DASH)
        explain(self._pacing, explanation)
        self._refresh_chip()
        for chart in (self._positions, self._strip, self._time_bar):
            chart.describe()
        if self._is_answering and speed is not None and self.isVisible():
            # A speed of now goes stale by itself: look again until it has.
            self._text_pulse.start()
            self._chart_pulse.start()

    def _refresh_chip(self) -> None:
        word = _CHIP_WORDS[self._state]
        length = self._draft_length or round(self._typical_length or 0) or typical_length(self._recent_lengths)
        if self._state is PanelState.on and length:
            word = f"{word}, length {length}"
        self._chip.setText(word)
        self._chip.setAccessibleName(f"Speculation: {word}")

    def _hold_place(self) -> None:
        """The sentence gives no line back within an answer: nothing may jump when drafting pauses for a moment."""
        needed = self._sentence.heightForWidth(self._sentence.width())
        self._sentence.setMinimumHeight(max(self._sentence.minimumHeight(), needed))

    def _release_place(self) -> None:
        self._sentence.setMinimumHeight(2 * self._sentence.fontMetrics().lineSpacing())
        self._hold_place()

    @property
    def _main_drafter(self) -> DrafterKind:
        """Where two drafters take turns: the one that drafted more."""
        model, lookup = (self._stats_of[kind].drafted for kind in ByDrafter.KINDS)
        return DrafterKind.lookup if lookup > model else self._drafter

    def _shown_speed(self) -> float | None:
        return self._speed.current(self._clock()) if self._is_answering else self._average

    def _shown_plain_speed(self) -> float | None:
        """Over the same tokens as the speed beside it."""
        over_the_answer = None if self._is_answering else self._plain_time.average()
        return over_the_answer or self._plain_speed

    def _missing_comparison(self, speed: float | None) -> str:
        """Why there is no speed-up to show, in words; empty if there is one."""
        if self._drafter is DrafterKind.none:
            return "no draft"
        if self._plain_speed is None:
            return "not measured yet"
        if speed is None:
            if self._is_answering:
                return "measuring"
            return "too short to tell" if self._stats.rounds else "no answer yet"
        if not self._stats.rounds_with_draft:
            # Plain against plain says how busy the machine is, nothing else.
            return "plain so far" if self._is_answering else "all plain"
        return ""

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._text_pulse.stop()
        self._chart_pulse.stop()

    # -- layout ---------------------------------------------------------------------------------------------------

    def sizeHint(self) -> QSize:
        return QSize(self.appearance.px(320), self.appearance.px(860))

    def _build(self) -> None:
        look = self.appearance
        self._chip = Chip(look)
        self._sentence = Words(look, wrap=True)
        self._sentence.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._card = SpeedCard(look)
        self._rate, self._probability, self._length = (
            NamedValue(look, name, _EXPLANATIONS[name])
            for name in ("Draft acceptance rate", "Token acceptance probability", "Mean acceptance length")
        )
        self._by_drafter = ByDrafter(look)
        self._by_drafter.hide()
        self._positions = PositionChart(look)
        self._strip = RoundsStrip(look)
        self._time_bar = TimeBar(look)
        self._pacing = Words(look, wrap=True)
        self._sentence.setObjectName("sentence")
        self._chip.setObjectName("chip")
        self._pacing.setObjectName("pacing")
        by_position = Words(look, "Acceptance by position", bold=True)
        explain(by_position, _EXPLANATIONS["Acceptance by position"])
        self._rounds, self._time = (
            NamedValue(look, name, _EXPLANATIONS[name], is_heading=True, value_token="soft")
            for name in ("Rounds", "Time of a round")
        )

        title = QHBoxLayout()
        title.addWidget(Words(look, "Speculation", size=TEXT, token="text", bold=True), 1)
        title.addWidget(self._chip)
        content = QWidget()
        self._column = QVBoxLayout(content)
        self._sections: list[tuple[QVBoxLayout, int]] = []  # with the gap inside
        head = self._add_section(self._sentence)
        head.insertLayout(0, title)
        self._column.addWidget(self._card)
        self._add_section(self._rate, self._by_drafter, self._probability, self._length)
        caption = Words(look, "by draft position", size=HINT, token="faint")
        self._add_section(by_position, self._positions, caption)
        self._add_section(self._rounds, self._strip, RoundsLegend(look), gap=8)
        self._add_section(self._time, self._time_bar, gap=8)
        self._add_section(Words(look, "Pacing", bold=True), self._pacing)
        self._column.addStretch(1)

        self._scroll = QScrollArea()
        self._scroll.setAccessibleName("Speculation")
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setWidgetResizable(True)
        self._scroll.setWidget(content)
        # One ground for all: the panel's own.
        self._scroll.viewport().setAutoFillBackground(False)
        content.setAutoFillBackground(False)
        self.setAutoFillBackground(True)
        outer = QHBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self._scroll)

    def _add_section(self, *widgets: QWidget, gap: int = 4) -> QVBoxLayout:
        section = QVBoxLayout()
        for widget in widgets:
            section.addWidget(widget)
        self._sections.append((section, gap))
        self._column.addLayout(section)
        return section

    def _apply_appearance(self) -> None:
        px = self.appearance.px
        self.setMinimumWidth(px(300))
        self.setMaximumWidth(px(340))
        self._release_place()
        self._column.setContentsMargins(px(12), px(16), px(12), px(16))
        self._column.setSpacing(px(24))
        for section, gap in self._sections:
            section.setContentsMargins(px(8), 0, px(8), 0)
            section.setSpacing(px(gap))
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.Window, self.appearance.theme.color("side"))
        self.setPalette(palette)
