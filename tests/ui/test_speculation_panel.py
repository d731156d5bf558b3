"""The speculation panel: what it says for given rounds, how often it repaints, and that it fits its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QLabel, QScrollArea, QWidget

from app.engine.protocol import Timing
from app.engine.rounds import DrafterKind
from app.engine.stats import SpeculationStats
from app.ui.speculation.by_drafter import ByDrafter
from app.ui.speculation.charts import PositionChart, SpeedBars, TimeBar
from app.ui.speculation.marks import Mark
from app.ui.speculation.measures import DASH
from app.ui.speculation.panel import CHART_MS, TEXT_MS, PanelState, SpeculationPanel
from app.ui.speculation.pulse import Pulse
from app.ui.speculation.rounds_strip import RoundsStrip
from app.ui.theme import Appearance, ThemeMode
from tests.support.rounds import make_round

RATES = ("Draft acceptance rate", "Token acceptance probability", "Mean acceptance length")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def timing(tokens_per_s: float | None) -> Timing:
    return Timing(1.0, 0.2, 0.3, 4.0, 1.0, 2.8, 0.2, tokens_per_s)


@pytest.fixture
def appearance(qapp: QObject) -> Appearance:
    return Appearance(ThemeMode.light)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def panel(qtbot, appearance: Appearance, clock: Clock) -> SpeculationPanel:
    panel = SpeculationPanel(appearance, clock=clock)
    qtbot.addWidget(panel)
    panel.resize(320, 860)
    panel.show()
    return panel


def text(panel: SpeculationPanel, name: str) -> str:
    label = panel.findChild(QLabel, name)
    assert label is not None, name
    return label.text().replace("\N{NO-BREAK SPACE}", " ")


def running_timers(panel: QObject) -> list[QTimer]:
    return [timer for timer in panel.findChildren(QTimer) if timer.isActive()]


class PaintCounter(QObject):
    def __init__(self, widgets: list[QWidget]) -> None:
        super().__init__()
        self.count = 0
        for widget in widgets:
            widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.Paint
        return False


# -- texts --------------------------------------------------------------------------------------------------------


def test_everything_unknown_is_a_dash(panel: SpeculationPanel) -> None:
    for name in (*RATES, "Rounds", "Time of a round", "speed", "factor", "pacing"):
        assert text(panel, name) == DASH, name
    panel.begin_answer(DrafterKind.model)
    for name in (*RATES, "speed", "factor"):
        assert text(panel, name) == DASH, name


def test_counters_become_the_three_rates(panel: SpeculationPanel) -> None:
    panel.begin_answer(DrafterKind.model)
    rounds = [make_round(0, 3), make_round(1, 1, 2), make_round(2, 0, 3), make_round(3, 2, discarded=1)]
    stats = SpeculationStats()
    for r in rounds:
        panel.observe(r)
        stats.observe(r)
    panel.finish_answer(timing(48.2))
    assert (stats.accepted, stats.drafted, stats.discarded, stats.rounds_rejected) == (6, 12, 1, 2)
    assert text(panel, "Draft acceptance rate") == "55 %"  # 6 / (12 - 1)
    assert text(panel, "Token acceptance probability") == "75 %"  # 6 / (6 + 2)
    assert text(panel, "Mean acceptance length") == "2.5 tokens"  # 1 + 6 / 4
    assert text(panel, "Rounds") == "4 rounds, 9 tokens"
    assert text(panel, "Time of a round") == "70 ms"
    assert text(panel, "speed") == "48.2"
    assert panel.findChild(TimeBar).words == ("draft 15", "verify 51", "rest 4 ms")
    chart = panel.findChild(PositionChart)
    assert [chart.value_at(i) for i in range(4)] == [0.75, 0.5, 0.25, None]


def test_texts_follow_while_answering(qtbot, panel: SpeculationPanel, clock: Clock) -> None:
    panel.begin_answer(DrafterKind.model)
    for i in range(30):
        clock.now += 0.1
        panel.observe(make_round(i, 3))
    qtbot.waitUntil(lambda: text(panel, "speed") == "40.0")
    assert text(panel, "Rounds") == "30 rounds, 120 tokens"
    assert panel.findChild(SpeedBars).description().startswith("now 40.0 tokens a second")


def test_factor_needs_a_measured_plain_speed(panel: SpeculationPanel) -> None:
    panel.begin_answer(DrafterKind.model)
    panel.observe(make_round(0, 3))
    panel.finish_answer(timing(48.2))
    assert (text(panel, "factor"), text(panel, "factor hint")) == (DASH, "not measured yet")
    assert panel.findChild(SpeedBars).description().endswith(f"without a draft {DASH} tokens a second")
    panel.set_plain_speed(27.7)
    assert (text(panel, "factor"), text(panel, "factor hint")) == ("1.74×", "faster")
    panel.set_plain_speed(None)
    assert text(panel, "factor") == DASH


def test_plain_rounds_are_not_compared_with_plain(panel: SpeculationPanel) -> None:
    """A pair whose drafting never began, or stayed paused, was not faster: the machine was."""
    panel.set_plain_speed(27.7)
    panel.begin_answer(DrafterKind.chained)
    for i in range(11):
        panel.observe(make_round(i, 0, drafter=DrafterKind.none))
    panel.finish_answer(timing(29.1))
    assert (text(panel, "factor"), text(panel, "factor hint")) == (DASH, "all plain")
    panel.begin_answer(DrafterKind.chained)
    panel.observe(make_round(0, 3))
    panel.finish_answer(timing(29.1))
    assert (text(panel, "factor"), text(panel, "factor hint")) == ("1.05×", "faster")


def test_an_answer_is_compared_with_plain_at_the_moments_it_was_written(panel: SpeculationPanel) -> None:
    """A machine that grew idle at the end of an answer says nothing about its beginning."""
    panel.begin_answer(DrafterKind.model)
    for plain in (20.0, 40.0):  # as many tokens at each: two thirds of the plain time at the first
        panel.set_plain_speed(plain)
        for i in range(10):
            panel.observe(make_round(i, 3))
    panel.finish_answer(timing(40.0))
    assert text(panel, "factor") == "1.50×"
    assert "without a draft 26.7" in panel.findChild(SpeedBars).description()
    panel.set_plain_speed(80.0)  # what the next answer is compared with
    assert text(panel, "factor") == "1.50×"


def test_answer_that_was_cut_off_keeps_the_speed_seen(panel: SpeculationPanel, clock: Clock) -> None:
    panel.begin_answer(DrafterKind.model)
    for i in range(11):
        clock.now += 0.1
        panel.observe(make_round(i, 3))
    panel.finish_answer(None)
    assert text(panel, "speed") == "40.0"


def test_answer_without_a_draft(panel: SpeculationPanel) -> None:
    panel.set_state(PanelState.on, "On: the draft pays.")
    panel.set_plain_speed(27.7)
    panel.begin_answer(DrafterKind.none)
    for i in range(5):
        panel.observe(make_round(i, 0, drafter=DrafterKind.none))
    panel.finish_answer(timing(27.0))
    assert text(panel, "chip") == "Off"
    assert text(panel, "sentence").startswith("Off: ")
    assert [text(panel, name) for name in RATES] == [DASH] * 3
    assert (text(panel, "factor"), text(panel, "factor hint")) == (DASH, "no draft")
    assert text(panel, "speed") == "27.0"
    assert panel.findChild(TimeBar).words[0] == f"draft {DASH}"
    strip = panel.findChild(RoundsStrip)
    assert [mark for i in range(5) for mark, _ in strip.boxes(i)] == [Mark.plain] * 5


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (PanelState.off, "Off"),
        (PanelState.loading, "Loading"),
        (PanelState.idle, "Ready"),
        (PanelState.on, "On"),
        (PanelState.paused, "Paused"),
        (PanelState.failed, "Failed"),
    ],
)
def test_chip_and_sentence(panel: SpeculationPanel, state: PanelState, word: str) -> None:
    panel.set_state(state, "Because <b> & so on.")
    assert text(panel, "chip") == word
    assert text(panel, "sentence") == "Because <b> & so on."
    assert panel.findChild(QLabel, "sentence").textFormat() == Qt.TextFormat.PlainText


def test_chip_names_the_draft_length(panel: SpeculationPanel) -> None:
    panel.set_state(PanelState.on, "On.", 5)
    assert text(panel, "chip") == "On, length 5"
    assert panel.findChild(PositionChart).positions == 8
    panel.set_state(PanelState.on, "On.")
    panel.begin_answer(DrafterKind.model)
    for i in range(6):
        panel.observe(make_round(i, 2, 1))
    panel.finish_answer(None)
    assert text(panel, "chip") == "On, length 3"


def test_clear_forgets_the_answer_but_not_the_pair(panel: SpeculationPanel) -> None:
    panel.set_state(PanelState.on, "On.")
    panel.set_plain_speed(20.0)
    panel.set_pacing_sentence("Drafting 4.")
    panel.begin_answer(DrafterKind.model)
    for i in range(9):
        panel.observe(make_round(i, 6, 1))
    panel.finish_answer(timing(40.0))
    assert text(panel, "factor") == "2.00×"
    panel.clear()
    for name in (*RATES, "Rounds", "Time of a round", "speed", "factor", "pacing"):
        assert text(panel, name) == DASH, name
    assert panel.findChild(RoundsStrip).columns == ()
    assert panel.findChild(PositionChart).positions == 4
    assert text(panel, "chip") == "On"
    assert "20.0" in panel.findChild(SpeedBars).description()


def test_position_chart_only_grows_within_an_answer(panel: SpeculationPanel) -> None:
    chart = panel.findChild(PositionChart)
    panel.begin_answer(DrafterKind.model)
    seen = []
    for i, accepted in enumerate((3, 7, 2, 1)):
        panel.observe(make_round(i, accepted))
        panel.finish_answer(None)
        seen.append(chart.positions)
    assert seen == [4, 8, 8, 8]


def test_the_usual_length_is_the_one_that_pacing_reports(panel: SpeculationPanel) -> None:
    panel.set_state(PanelState.on, "On.")
    panel.set_typical_length(4.6)
    panel.begin_answer(DrafterKind.model)
    for i in range(6):
        panel.observe(make_round(i, 2, 1))
    panel.finish_answer(None)
    assert text(panel, "chip") == "On, length 5"
    panel.set_state(PanelState.on, "On.", 2)
    assert text(panel, "chip") == "On, length 2", "the user's own length"
    panel.set_state(PanelState.on, "On.")
    panel.set_typical_length(None)
    assert text(panel, "chip") == "On, length 3"


def test_two_drafters_of_one_answer_have_rates_of_their_own(panel: SpeculationPanel) -> None:
    rates = panel.findChild(ByDrafter)
    panel.begin_answer(DrafterKind.model)
    assert not rates.isVisible()
    panel.begin_answer(DrafterKind.chained)
    assert rates.isVisible()
    assert rates.description() == "draft model not known yet, lookup not known yet"
    panel.observe(make_round(0, 3, 1, drafter=DrafterKind.model))
    panel.observe(make_round(1, 0, drafter=DrafterKind.none))
    panel.observe(make_round(2, 1, 1, drafter=DrafterKind.lookup))
    panel.finish_answer(None)
    assert rates.description().replace("\N{NO-BREAK SPACE}", " ") == "draft model 75 %, lookup 50 %"
    assert text(panel, "Draft acceptance rate") == "67 %"
    strip = panel.findChild(RoundsStrip)
    assert [mark for mark, _ in strip.boxes(0)] == [*[Mark.draft] * 3, Mark.recovered, Mark.rejected]
    assert [mark for mark, _ in strip.boxes(1)] == [Mark.plain]
    assert [mark for mark, _ in strip.boxes(2)] == [Mark.lookup, Mark.recovered, Mark.rejected]
    panel.clear()
    assert not rates.isVisible()


def test_a_pause_moves_nothing_and_keeps_the_figures(qtbot, panel: SpeculationPanel) -> None:
    """Whatever the sentence is, what stands below it stays where it is, and the rates are those of the answer."""
    panel.set_state(PanelState.on, "On: Qwen2.5-Coder-0.5B-Instruct-Q4_K_M runs ahead, or the text where it repeats.")
    panel.begin_answer(DrafterKind.chained)
    for i in range(8):
        panel.observe(make_round(i, 3, 1))
    qtbot.waitUntil(lambda: text(panel, "Draft acceptance rate") == "75 %")
    places = []
    sentences = (
        (PanelState.on, "On: Qwen2.5-Coder-0.5B-Instruct-Q4_K_M runs ahead, or the text where it repeats."),
        (PanelState.paused, "Paused: plain is faster here."),
        (PanelState.off, ""),
    )
    for state, sentence in sentences:
        panel.set_state(state, sentence)
        for i in range(8, 24):
            panel.observe(make_round(i, 0, drafter=DrafterKind.none))
        qtbot.wait(CHART_MS + TEXT_MS)
        watched = (*(panel.findChild(QLabel, name) for name in (*RATES, "speed", "pacing")), panel.findChild(TimeBar))
        places.append([(w.mapTo(panel, w.rect().topLeft()).y(), w.height()) for w in watched])
        assert text(panel, "Draft acceptance rate") == "75 %"
    assert places[0] == places[1] == places[2]
    assert text(panel, "Mean acceptance length") == "4.0 tokens"


def test_reports_in_an_answer_wait_for_the_next_refresh(qtbot, panel: SpeculationPanel) -> None:
    panel.begin_answer(DrafterKind.model)
    panel.observe(make_round(0, 2))
    for n in range(50):
        panel.set_plain_speed(20.0 + n)
        panel.set_typical_length(float(n))
        panel.set_pacing_sentence(f"On: usually {n} draft tokens a round.", f"Measured here: {n}.")
    assert text(panel, "pacing") == DASH
    qtbot.waitUntil(lambda: text(panel, "pacing") == "On: usually 49 draft tokens a round.")
    assert panel.findChild(QLabel, "pacing").accessibleDescription() == "Measured here: 49."
    assert "69.0" in panel.findChild(SpeedBars).description()
    panel.finish_answer(timing(30.0))
    panel.set_plain_speed(15.0)
    assert text(panel, "factor") == "2.00×"


# -- repainting ---------------------------------------------------------------------------------------------------


def test_observing_repaints_nothing_by_itself(qtbot, panel: SpeculationPanel) -> None:
    with qtbot.waitExposed(panel):
        panel.show()
    panel.begin_answer(DrafterKind.model)
    QCoreApplication.sendPostedEvents()
    counter = PaintCounter(panel.findChildren(QWidget))
    for i in range(2000):
        panel.observe(make_round(i, 2, 1))
    QCoreApplication.sendPostedEvents()  # delivers what was asked to be painted, but no timer
    assert counter.count == 0
    assert text(panel, "Rounds") == DASH
    qtbot.waitUntil(lambda: text(panel, "Rounds") == "2,000 rounds, 6,000 tokens")
    assert counter.count > 0


def test_no_timer_runs_without_rounds(qtbot, panel: SpeculationPanel, clock: Clock) -> None:
    assert running_timers(panel) == []
    panel.begin_answer(DrafterKind.model)
    for i in range(20):
        clock.now += 0.1
        panel.observe(make_round(i, 2))
    assert len(running_timers(panel)) == 2
    panel.finish_answer(timing(30.0))
    assert running_timers(panel) == []


def test_timers_rest_when_the_engine_stalls(qtbot, panel: SpeculationPanel, clock: Clock) -> None:
    panel.begin_answer(DrafterKind.model)
    for i in range(20):
        clock.now += 0.1
        panel.observe(make_round(i, 2))
    qtbot.waitUntil(lambda: text(panel, "speed") == "30.0")
    clock.now += 30
    qtbot.waitUntil(lambda: text(panel, "speed") == DASH)
    qtbot.waitUntil(lambda: running_timers(panel) == [])


def test_hidden_panel_counts_but_runs_no_timer(panel: SpeculationPanel) -> None:
    panel.begin_answer(DrafterKind.model)
    panel.observe(make_round(0, 2))
    panel.hide()
    assert running_timers(panel) == []
    panel.observe(make_round(1, 2))
    assert running_timers(panel) == []
    panel.show()
    assert text(panel, "Rounds") == "2 rounds, 6 tokens"


def test_pulse_gathers_requests_and_rests(qtbot, qapp: QObject) -> None:
    calls: list[int] = []
    pulse = Pulse(5, lambda: calls.append(1), qapp)
    for _ in range(100):
        pulse.start()
    assert calls == []
    qtbot.waitUntil(lambda: not pulse.is_beating)
    assert calls == [1]


# -- people -------------------------------------------------------------------------------------------------------


def test_keys_walk_through_the_rounds(qtbot, panel: SpeculationPanel) -> None:
    strip = panel.findChild(RoundsStrip)
    qtbot.keyClick(strip, Qt.Key.Key_Left)  # nothing to walk through yet
    panel.begin_answer(DrafterKind.model)
    for i in range(5):
        panel.observe(make_round(i, 2))
    panel.finish_answer(None)
    heads = []
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Left, Qt.Key.Key_Home, Qt.Key.Key_Left, Qt.Key.Key_End, Qt.Key.Key_Right):
        qtbot.keyClick(strip, key)
        heads.append(strip.accessibleDescription().split(":")[0])
    assert heads == [f"Round {n}" for n in (5, 4, 1, 1, 5, 5)]


def test_everything_has_a_name_and_the_numbers_in_words(panel: SpeculationPanel) -> None:
    panel.begin_answer(DrafterKind.model)
    for i in range(3):
        panel.observe(make_round(i, 2, 1))
    panel.finish_answer(timing(48.2))
    charts = [w for w in panel.findChildren(QWidget) if hasattr(w, "describe")]
    assert len(charts) == 6
    focusable = [w for w in panel.findChildren(QWidget) if w.focusPolicy() & Qt.FocusPolicy.TabFocus]
    for widget in charts + focusable:
        assert QAccessible.queryAccessibleInterface(widget).text(QAccessible.Text.Name), widget
    for chart in charts:
        assert chart.accessibleDescription() == chart.description() != ""
    assert "48.2" in panel.findChild(SpeedBars).accessibleDescription()
    assert "verify 51 milliseconds" in panel.findChild(TimeBar).accessibleDescription()
    assert "6 draft, 3 recovered, 3 rejected" in panel.findChild(RoundsStrip).accessibleDescription()
    assert panel.findChild(QLabel, RATES[0]).accessibleName().replace("\xa0", " ") == f"{RATES[0]}: 67 %"
    for name in RATES:
        label = panel.findChild(QLabel, name)
        assert "divided by" in label.accessibleDescription()
        assert label.parentWidget().toolTip() == f"<p>{label.accessibleDescription()}</p>"


def _fill(panel: SpeculationPanel) -> None:
    panel.set_state(PanelState.on, "On: the draft is right often enough to pay, also on this machine.", 16)
    panel.set_pacing_sentence("Drafting 4: a fifth token would be accepted 45 % of the time and no longer pays.")
    panel.begin_answer(DrafterKind.model)
    for i in range(9999):
        panel.observe(make_round(i, 0, 3) if i % 2 else make_round(i, 3))
    panel.finish_answer(timing(148.2))


def test_fits_the_window_and_scrolls_only_up_and_down(qtbot, panel: SpeculationPanel) -> None:
    scroll = panel.findChild(QScrollArea)
    _fill(panel)

    def overflow(width: int, height: int) -> tuple[int, int]:
        panel.resize(width, height)
        QCoreApplication.sendPostedEvents()
        return scroll.widget().width() - scroll.viewport().width(), scroll.verticalScrollBar().maximum()

    assert overflow(320, 860) == (0, 0)
    assert overflow(300, 860) == (0, 0)
    across, down = overflow(300, 600)
    assert across == 0 < down


@pytest.mark.parametrize("change", [lambda a: a.set_mode(ThemeMode.dark), lambda a: a.set_zoom(1.5)])
def test_follows_theme_and_zoom(
    panel: SpeculationPanel, appearance: Appearance, change: Callable[[Appearance], None]
) -> None:
    _fill(panel)
    before = panel.grab().toImage(), panel.minimumWidth(), panel.findChild(RoundsStrip).sizeHint().height()
    change(appearance)
    theme, zoom = appearance.theme, appearance.zoom
    image = panel.grab().toImage()
    assert image.pixelColor(2, panel.height() - 2).name().upper() == theme.side
    assert image != before[0]
    assert panel.minimumWidth() == 300 * zoom
    assert panel.findChild(RoundsStrip).sizeHint().height() == 100 * zoom
    speed = panel.findChild(QLabel, "speed")
    assert speed.font().pixelSize() == 38 * zoom
    assert speed.palette().windowText().color().name().upper() == theme.text
