"""The panel's arithmetic without Qt: a sliding speed, means over rounds, numbers as texts that keep their places."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from app.engine.rounds import RoundTimes
from app.engine.stats import SpeculationStats

DASH = "–"  # a value nobody knows yet
NBSP = "\N{NO-BREAK SPACE}"
WINDOW_S = 2.0
SHORTEST_SPAN_S = 0.25  # below it, two rounds handed over together would look like thousands of tokens a second


class SpeedMeter:
    """Tokens a second over the last seconds. The first round only starts the clock, since its start is not known."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()  # time, tokens so far; the first one is where counting begins
        self._first: tuple[float, int] | None = None
        self._tokens = 0

    def add(self, tokens: int, now: float) -> None:
        self._tokens += tokens
        self._samples.append((now, self._tokens))
        self._first = self._first or self._samples[0]
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()

    def current(self, now: float) -> float | None:
        """The sliding speed; None before it can be known, and when no round has come for longer than the window."""
        if len(self._samples) < 2:
            return None
        (begin, tokens_before), (end, tokens) = self._samples[0], self._samples[-1]
        mean_gap = (end - begin) / (len(self._samples) - 1)
        if end - begin < SHORTEST_SPAN_S or now - end > WINDOW_S + mean_gap:
            return None
        return (tokens - tokens_before) / (end - begin)

    def average(self) -> float | None:
        """The speed from the first round to the last."""
        if self._first is None or self._samples[-1][0] <= self._first[0]:
            return None
        return (self._tokens - self._first[1]) / (self._samples[-1][0] - self._first[0])


class PlainTime:
    """What the tokens of an answer would have taken without a draft, each at the plain speed of its own moment.

    A machine that becomes busier or idler meanwhile would else make a whole answer look faster or slower than plain.
    """

    def __init__(self) -> None:
        self._tokens = 0
        self._seconds = 0.0

    def add(self, tokens: int, plain_speed: float) -> None:
        """`plain_speed`: tokens per second, > 0."""
        self._tokens += tokens
        self._seconds += tokens / plain_speed

    def average(self) -> float | None:
        """Tokens per second; None before anything was added."""
        return self._tokens / self._seconds if self._tokens else None


def mean_times(stats: SpeculationStats) -> RoundTimes | None:
    """The mean times of a round of this answer."""
    if not stats.rounds:
        return None
    sums, n = stats.times, stats.rounds
    return RoundTimes(sums.draft / n, sums.verify / n, sums.sample / n)


def typical_length(lengths: Iterable[int]) -> int | None:
    """The draft length seen most often; rounds without a draft say nothing about it."""
    seen = Counter(length for length in lengths if length)
    return seen.most_common(1)[0][0] if seen else None


def position_count(draft_length: int) -> int:
    """How many positions a chart shows: whole steps of four, so that a draft one token longer moves nothing."""
    return max(4, -(-draft_length // 4) * 4)


def scale_above(value: float) -> float:
    """The smallest of 10, 20, 50, 100, 200, … that holds `value`: the full length of a bar."""
    step = 10.0
    while True:
        for factor in (1, 2, 5):
            if value <= step * factor:
                return step * factor
        step *= 10


def speed_text(tokens_per_s: float | None) -> str:
    """Three figures, which is more than the measurement holds and keeps the width."""
    if tokens_per_s is None:
        return DASH
    return f"{tokens_per_s:.1f}" if tokens_per_s < 99.95 else f"{tokens_per_s:.0f}"


def percent_text(share: float | None) -> str:
    return DASH if share is None else f"{share * 100:.0f}{NBSP}%"


def length_text(tokens: float | None) -> str:
    return DASH if tokens is None else f"{tokens:.1f} tokens"


def ms_texts(*seconds: float | None) -> list[str]:
    """Times of one round in milliseconds, all with the same number of places, chosen by their sum."""
    places = 1 if sum(s or 0.0 for s in seconds) < 0.020 else 0
    return [DASH if s is None else f"{s * 1000:.{places}f}" for s in seconds]


def factor_texts(now: float, plain: float) -> tuple[str, str]:
    """The speed-up and the word for it. Both speeds are measured; nothing here knows of acceptance."""
    factor = round(now / plain, 2)
    word = "faster" if factor > 1 else "slower" if factor < 1 else "as fast"
    return f"{factor:.2f}×", word
