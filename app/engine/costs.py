"""What a decode costs by the size of its batch, learned while chatting and robust to a machine that does other work.

Times are kept as ratios to the time of one token *at that moment*, so that another program on the same cores slows the
estimate of the moment and leaves the ratios as they are. Medians of the newest few let an outlier pass without effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median

_NOW = 5  # samples that tell how fast the machine is now: fewer than those of a ratio, so that it gives way first
_NEWEST = 11  # samples of a ratio
_TRUSTED = 2  # samples of a size before it tells how fast the machine is now
_CURIOSITY = 0.9  # of the interpolated cost: a size never tried is worth one try where it nearly pays
_FIRST_SLOPE = 0.25  # cost of one more token before anything is known, in units of the first
_TICK_S = 1e-7  # a clock too coarse to see it took no time at all
BULK = 32  # tokens from which on a batch is read like a prompt: its cost is proportional to its size


class BatchCosts:
    """Seconds of a decode of n tokens, n >= 1. The cost need not grow with n: 4 can be cheaper than 3."""

    def __init__(
        self, unit_s: float | None = None, ratios: Mapping[int, float] | None = None, bulk: float | None = None
    ) -> None:
        self._bulk_s = None if bulk is None or unit_s is None else bulk * unit_s  # of a token in a large batch
        self.unit_s = unit_s  # seconds of one token now; None before anything was measured
        self._units: deque[float] = deque([] if unit_s is None else [unit_s], maxlen=_NOW)
        self._samples = {n: deque([ratio] * _TRUSTED, maxlen=_NEWEST) for n, ratio in (ratios or {}).items()}
        self._ratios = dict(ratios or {})
        self._ratios.setdefault(1, 1.0)

    @property
    def bulk(self) -> float | None:
        """Cost of a token in a large batch, in units of one alone."""
        return None if self._bulk_s is None or not self.unit_s else self._bulk_s / self.unit_s

    @property
    def measured(self) -> dict[int, float]:
        """Seconds by the sizes that were really seen."""
        unit = self.unit_s or 0.0
        return {n: ratio * unit for n, ratio in sorted(self._ratios.items()) if n in self._samples}

    @property
    def ratios(self) -> dict[int, float]:
        """Cost of the sizes seen, in units of one token: what another run can start with."""
        return {n: ratio for n, ratio in sorted(self._ratios.items()) if n in self._samples}

    def observe(self, n: int, seconds: float) -> None:
        """A decode of `n` tokens took `seconds`."""
        seconds = max(seconds, _TICK_S)
        if n >= BULK:
            self._bulk_s = seconds / n
            return
        samples = self._samples.setdefault(n, deque(maxlen=_NEWEST))
        unit = self.unit_s
        if unit is None:
            unit = seconds / self.ratio(n)
            self._units.append(unit)
        elif n == 1 or len(samples) >= _TRUSTED:
            self._units.append(seconds / self.ratio(n))
        samples.append(seconds / unit)
        if n > 1:
            self._ratios[n] = median(samples)
        self.unit_s = median(self._units)

    def seconds(self, n: int) -> float:
        """The expected cost of `n` tokens, measured or interpolated. 0.0 before anything was measured."""
        return self.ratio(n) * (self.unit_s or 0.0)

    def ratio(self, n: int) -> float:
        """Cost of `n` tokens in units of one."""
        known = self._ratios
        if n >= BULK and self.bulk is not None:
            return self.bulk * n
        if n in known:
            return known[n]
        below = max(size for size in known if size < n)
        above = min((size for size in known if size > n), default=None)
        if above is None:
            slope = self._last_slope(below)
            return _CURIOSITY * (known[below] + slope * (n - below))
        share = (n - below) / (above - below)
        return _CURIOSITY * (known[below] + share * (known[above] - known[below]))

    def _last_slope(self, largest: int) -> float:
        """Cost of one more token behind the largest size seen: the second token often costs more than all later."""
        known = self._ratios
        before = max((size for size in known if 1 < size < largest), default=None)
        if before is None:
            return min(_FIRST_SLOPE, (known[largest] - 1.0) / (largest - 1)) if largest > 1 else _FIRST_SLOPE
        slope = (known[largest] - known[before]) / (largest - before)
        return min(max(slope, 0.02), (known[largest] - 1.0) / (largest - 1))
