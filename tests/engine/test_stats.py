"""Counters and the ratios of DESIGN, section 2."""

from __future__ import annotations

import pytest

from app.engine.stats import SpeculationStats
from tests.support.rounds import make_round


def test_nothing_observed_has_no_ratio() -> None:
    stats = SpeculationStats()
    assert stats.draft_acceptance_rate is None
    assert stats.token_acceptance_probability is None
    assert stats.mean_acceptance_length is None
    assert stats.acceptance_at == []


def test_the_ratios_of_a_known_history() -> None:
    stats = SpeculationStats()
    for accepted, rejected, discarded in ((3, 0, 0), (1, 2, 0), (0, 3, 0), (0, 0, 0), (1, 0, 2)):
        stats.observe(make_round(stats.rounds, accepted, rejected, discarded=discarded))
    assert (stats.drafted, stats.accepted, stats.rejected, stats.discarded) == (12, 5, 5, 2)
    assert stats.draft_acceptance_rate == pytest.approx(5 / 10)
    assert stats.token_acceptance_probability == pytest.approx(5 / 7)
    assert stats.mean_acceptance_length == pytest.approx(1 + 5 / 4)
    assert stats.acceptance_at == pytest.approx([3 / 4, 1 / 4, 1 / 4])
    assert dict(stats.draft_lengths) == {3: 4, 0: 1}
    assert stats.rounds == 5
    assert stats.tokens == 4 + 2 + 1 + 1 + 1
