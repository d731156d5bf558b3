"""What decodes cost, learned from times that other programs disturb."""

from __future__ import annotations

import json

import numpy as np
import pytest

from app.engine.costs import BULK, BatchCosts
from app.engine.experience import Experience, setting_of
from app.engine.protocol import SamplingParams, VerifyRule
from app.engine.rounds import DrafterKind


def taught(*sizes: int, unit: float = 0.02, n: int = 12) -> BatchCosts:
    costs = BatchCosts()
    for _ in range(n):
        for size in (1, *sizes):
            costs.observe(size, unit * cost(size))
    return costs


def cost(n: int) -> float:
    return {1: 1.0, 2: 1.5, 3: 2.2, 4: 1.8}.get(n, 1.0 + 0.3 * n)


def test_measured_sizes_are_known_exactly_even_where_they_are_not_in_order() -> None:
    costs = taught(2, 3, 4, 8)
    for n in (1, 2, 3, 4, 8):
        assert costs.seconds(n) == pytest.approx(0.02 * cost(n))
    assert costs.measured == {n: pytest.approx(0.02 * cost(n)) for n in (1, 2, 3, 4, 8)}


def test_a_size_never_seen_is_guessed_between_its_neighbours_and_worth_a_try() -> None:
    costs = taught(2, 8)
    assert costs.ratio(2) < costs.ratio(5) < costs.ratio(8)
    assert costs.ratio(5) < (costs.ratio(2) + costs.ratio(8)) / 2


def test_an_outlier_changes_nothing() -> None:
    costs = taught(4)
    before = {n: costs.seconds(n) for n in (1, 4)}
    for n in (1, 4):
        costs.observe(n, 10.0)
    assert {n: costs.seconds(n) for n in (1, 4)} == {n: pytest.approx(s, rel=0.01) for n, s in before.items()}


def test_a_machine_that_became_slower_is_noticed_from_any_size_and_keeps_its_ratios() -> None:
    costs = taught(4)
    for _ in range(12):
        costs.observe(4, 3 * 0.02 * cost(4))
    assert costs.seconds(1) == pytest.approx(0.06, rel=0.05)
    assert costs.ratio(4) == pytest.approx(cost(4), rel=0.05)


def test_a_prompt_costs_by_its_length() -> None:
    costs = taught()
    costs.observe(400, 400 * 0.004)
    assert costs.seconds(200) == pytest.approx(0.8)
    assert costs.bulk == pytest.approx(0.2)
    assert BULK not in costs.measured


def test_a_prompt_read_before_the_first_round_is_kept_until_the_unit_is_known() -> None:
    costs = BatchCosts()
    costs.observe(400, 1.6)
    assert costs.bulk is None
    costs.observe(1, 0.02)
    assert costs.bulk == pytest.approx(0.2)


def test_nothing_measured_costs_nothing_and_says_so() -> None:
    costs = BatchCosts()
    assert costs.unit_s is None
    assert costs.seconds(4) == 0.0
    assert costs.measured == {}


# -- kept between runs --------------------------------------------------------------------------------------------


def experience() -> Experience:
    made = Experience(taught(2, 4), taught(unit=0.003))
    acceptance = made.acceptance(DrafterKind.model, "rejection 0.7")
    acceptance.look([0.9, 0.2])
    acceptance.observe([0.9, 0.2], 1, 2)
    return made


def test_experience_comes_back_as_it_was_kept() -> None:
    kept = experience()
    back = Experience.from_plain(json.loads(json.dumps(kept.to_plain())))
    for n in (1, 2, 4):
        assert back.target.seconds(n) == pytest.approx(kept.target.seconds(n), rel=1e-3)
    assert back.draft.unit_s == pytest.approx(0.003)
    a, b = (e.acceptance(DrafterKind.model, "rejection 0.7") for e in (kept, back))
    assert b.rates() == pytest.approx(a.rates(), abs=0.15)  # what was of the moment only is not kept
    assert b.tested == pytest.approx(a.tested, abs=1e-3)
    assert np.allclose(b.usual, a.usual, atol=1e-3)


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        [],
        {},
        {"version": 99},
        {**experience().to_plain(), "acceptance": {"x": {"tested": [1], "accepted": [1], "usual": [1]}}},
        {**experience().to_plain(), "target": {"unit_s": -1.0, "ratios": {}, "bulk": None}},
        {**experience().to_plain(), "target": {"unit_s": "fast", "ratios": {}, "bulk": None}},
        {**experience().to_plain(), "draft": None},
    ],
)
def test_what_is_damaged_is_learned_again(damaged: object) -> None:
    assert Experience.from_plain(damaged).target.unit_s is None


def test_settings_that_change_acceptance_are_kept_apart() -> None:
    settings = {setting_of(SamplingParams(temperature=t), rule) for t in (0.0, 0.7, 0.71, 1.0) for rule in VerifyRule}
    assert len(settings) == 6
