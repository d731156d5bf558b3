"""The yardstick of `bench`: costs, acceptance and the speed-up that follows, by hand and against simulated rounds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from app.engine.ideal import LEAST_ROUNDS, LEAST_TESTED, MeasuredAcceptance, MeasuredCosts, expected_speedup, ideal
from app.engine.rounds import DrafterKind, Round, RoundTimes, Token, TokenSource


def make_round(
    number: int,
    drafted: int,
    accepted: int,
    *,
    discarded: int = 0,
    times: RoundTimes = RoundTimes(),  # noqa: B008 (immutable)
    drafter: DrafterKind = DrafterKind.model,
) -> Round:
    rejected = drafted - accepted - discarded
    tokens = (Token(1, TokenSource.draft),) * accepted + (Token(2, TokenSource.plain),) * (not discarded)
    return Round(
        number, drafter if drafted else DrafterKind.none, tokens, drafted, accepted, rejected, discarded, times
    )


def accepting(chances: Sequence[float], tested: int = 1000) -> MeasuredAcceptance:
    return MeasuredAcceptance((tested,) * len(chances), tuple(round(tested * chance) for chance in chances))


# -- costs --------------------------------------------------------------------------------------------------------


def test_costs_are_medians_by_the_size_of_the_pass() -> None:
    rounds = [make_round(i, 0, 0, times=RoundTimes(0, 0.010, 0.001)) for i in range(1, 4)]
    rounds += [make_round(i, 2, 1, times=RoundTimes(0.008, 0.020, 0.002)) for i in range(4, 7)]
    rounds += [make_round(7, 2, 1, times=RoundTimes(5.0, 9.0, 0.0))]  # an outlier
    costs = MeasuredCosts.of(rounds)
    assert costs.target_ms == pytest.approx({1: 11, 3: 22})
    assert costs.draft_ms == pytest.approx(4)
    assert costs.longest_draft == 2


def test_first_rounds_and_sizes_seen_too_seldom_do_not_count() -> None:
    times = RoundTimes(0, 0.010, 0)
    rounds = [make_round(0, 0, 0, times=RoundTimes(0, 7, 0))] * 9
    rounds += [make_round(1, 0, 0, times=times)] * LEAST_ROUNDS + [make_round(1, 1, 1, times=times)] * (
        LEAST_ROUNDS - 1
    )
    assert MeasuredCosts.of(rounds) == MeasuredCosts({1: pytest.approx(10)}, None)


def test_a_lookup_has_no_cost_of_a_draft_token() -> None:
    rounds = [make_round(1, 2, 1, times=RoundTimes(0.1, 0.1, 0), drafter=DrafterKind.lookup)] * 9
    assert MeasuredCosts.of(rounds).draft_ms is None


def test_costs_between_two_measured_lie_on_a_line_and_none_beyond() -> None:
    costs = MeasuredCosts({1: 10, 2: 14, 5: 20})
    assert costs.target(3) == pytest.approx(16)
    assert costs.target(4) == pytest.approx(18)
    assert costs.target(5) == 20
    with pytest.raises(ValueError, match="6 tokens"):
        costs.target(6)
    assert MeasuredCosts({}).longest_draft == 0


# -- acceptance ---------------------------------------------------------------------------------------------------


def test_only_decided_positions_count() -> None:
    rounds = [
        make_round(0, 0, 0),
        make_round(1, 3, 1),  # accepted, rejected, never reached
        make_round(2, 2, 2),  # a third position did not exist
        make_round(3, 4, 1, discarded=3),  # the answer ended behind the first
        make_round(4, 1, 0),
    ]
    found = MeasuredAcceptance.of(rounds)
    assert found.tested == (4, 2)
    assert found.accepted == (3, 1)
    assert found.drafting_share == 1.0


def test_seldom_tested_positions_get_the_chance_of_all() -> None:
    found = MeasuredAcceptance((LEAST_TESTED * 2, LEAST_TESTED - 1), (LEAST_TESTED, LEAST_TESTED - 1))
    together = (2 * LEAST_TESTED - 1) / (3 * LEAST_TESTED - 1)
    assert found.measured_positions == 1
    assert found.chance(0) == 0.5
    assert found.chance(1) == found.chance(9) == pytest.approx(together)
    assert found.expected(3) == pytest.approx(0.5 * (1 + together + together**2))


def test_mixed_lengths_give_the_chances_the_tokens_were_made_with() -> None:
    """Short drafts cut the curve off; that must not bend it."""
    chance = random.Random(5)
    chances = [0.9, 0.6, 0.8, 0.7]
    rounds = []
    for number in range(1, 40_001):
        length = chance.choice((1, 2, 4))
        accepted = next((i for i in range(length) if chance.random() >= chances[i]), length)
        rounds.append(make_round(number, length, accepted))
    found = MeasuredAcceptance.of(rounds)
    assert [found.chance(i) for i in range(4)] == pytest.approx(chances, abs=0.02)


# -- speed-up -----------------------------------------------------------------------------------------------------


def test_a_speed_up_by_hand() -> None:
    costs = MeasuredCosts({1: 10, 2: 11, 3: 12}, 2.0)
    acceptance = accepting([0.8, 0.5])
    assert expected_speedup(0, costs, acceptance) == 1.0
    assert expected_speedup(1, costs, acceptance) == pytest.approx(1.8 * 10 / 13)
    assert expected_speedup(2, costs, acceptance) == pytest.approx((1 + 0.8 + 0.4) * 10 / 16)
    found = ideal(costs, [acceptance])
    assert found
    assert (found.draft_length, found.speedup) == (1, pytest.approx(18 / 13))
    assert len(found.by_length) == 3


def test_the_prediction_is_what_such_rounds_take() -> None:
    """Rounds drawn at random and added up: tokens per time, against plain."""
    chance = random.Random(1)
    costs, acceptance, length = MeasuredCosts({1: 10, 5: 18}, 1.5), accepting([0.9, 0.8, 0.8, 0.7]), 4
    tokens, ms = 0, 0.0
    for _ in range(20_000):
        tokens += 1 + next((i for i in range(length) if chance.random() >= acceptance.chance(i)), length)
        ms += 18 + length * 1.5
    assert expected_speedup(length, costs, acceptance) == pytest.approx(tokens / ms * 10, rel=0.02)


def test_where_drafting_never_pays_the_ideal_is_to_draft_nothing() -> None:
    found = ideal(MeasuredCosts({1: 10, 2: 40, 4: 41}, 5.0), [accepting([0.9] * 3)])
    assert found
    assert (found.draft_length, found.speedup) == (0, 1.0)


def test_a_lookup_drafts_only_where_it_found_something() -> None:
    costs = MeasuredCosts({1: 10, 2: 12}, draft_ms=50.0)  # the model's, which a lookup does not pay
    half = MeasuredAcceptance((100,), (100,), drafting_share=0.5)
    found = ideal(costs, [half], is_lookup=True)
    assert found
    assert found.by_length[1] == pytest.approx(1.5 * 10 / 11)
    assert ideal(costs, [MeasuredAcceptance()], is_lookup=True).speedup == 1.0  # type: ignore[union-attr]


def test_the_ideal_is_of_the_median_text() -> None:
    costs = MeasuredCosts({1: 10, 2: 10}, 1.0)
    texts = [accepting([share]) for share in (0.0, 0.5, 1.0)]
    found = ideal(costs, texts)
    assert found
    assert found.speedup == pytest.approx(15 / 11)


def test_without_a_measured_plain_round_or_a_draft_there_is_no_ideal() -> None:
    assert ideal(MeasuredCosts({2: 10}), [accepting([0.5])]) is None
    assert ideal(MeasuredCosts({1: 10, 2: 11}), [MeasuredAcceptance()]) is None
