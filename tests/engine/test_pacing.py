"""Pacing in a world that keeps its own time: no fixed length is faster, and plain decoding is not faster either."""

from __future__ import annotations

import itertools
from dataclasses import replace
from statistics import mean

import numpy as np
import pytest

from app.engine.acceptance import BINS, Acceptance
from app.engine.experience import Experience
from app.engine.pacing import FixedPacing, LearningPacing, Policy
from app.engine.protocol import MAX_DRAFT_LENGTH
from app.engine.rounds import DrafterKind
from tests.support.paced_world import UNIT, World, graphics, mixed, processor

TOKENS, ANSWERS = 128, 10


def learning(experience: Experience, world: World) -> LearningPacing:
    return LearningPacing(experience, "setting", first_draft_cost=world.draft_cost)


def plain_speed(world: World) -> float:
    return replace(world, rounds=[]).write(FixedPacing(0), 2000)


def speeds(world: World, experience: Experience | None = None) -> list[float]:
    """Tokens per second of each of ten answers that learn from one another, in units of plain decoding."""
    experience = experience or Experience()
    plain = plain_speed(world)
    return [world.write(learning(experience, world), TOKENS) / plain for _ in range(ANSWERS)]


def best_fixed(world: World) -> float:
    plain = plain_speed(world)
    return max(replace(world, rounds=[]).write(FixedPacing(n), 4000) / plain for n in range(9))


def useless(at: int, rng: np.random.Generator) -> float:
    return float(rng.uniform(0, 0.02))


def sure(at: int, rng: np.random.Generator) -> float:
    return float(rng.beta(12, 0.5))


# -- as fast as it can be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cost", [processor, graphics])
def test_no_fixed_length_is_faster(cost, seed: int) -> None:  # type: ignore[no-untyped-def]
    world = World(cost, draft_cost=0.1, seed=seed)
    assert mean(speeds(world)[1:]) > 0.97 * best_fixed(world)


def test_where_four_tokens_cost_less_than_three_they_are_taken() -> None:
    def uneven(n: int) -> float:
        return {1: 1.0, 2: 1.6, 3: 2.2, 4: 1.5}.get(n, 1.0 + 0.5 * n)

    world = World(uneven, draft_cost=0.05, confidence=sure, chance=lambda at, confidence: 0.85)
    speeds(world)
    late = [r.drafted for r in world.rounds[-100:] if r.drafted]
    assert late.count(3) > 0.8 * len(late)


def test_a_longer_answer_of_easy_text_gets_longer_drafts() -> None:
    easy = World(graphics, 0.05, confidence=sure, chance=lambda at, confidence: 0.97)
    hard = World(graphics, 0.05, confidence=mixed, chance=lambda at, confidence: 0.5)
    lengths = []
    for world in (easy, hard):
        speeds(world)
        lengths.append(mean(r.drafted for r in world.rounds[-100:]))
    assert lengths[0] > 2 * lengths[1] > 0


def test_text_that_changes_its_character_is_followed_within_a_few_dozen_tokens() -> None:
    def phases(at: int, rng: np.random.Generator) -> float:
        return sure(at, rng) if at // 96 % 2 else float(rng.uniform(0, 0.4))

    world = World(graphics, draft_cost=0.3, confidence=phases, chance=lambda at, confidence: confidence)
    experience = Experience()
    for _ in range(4):
        world.write(learning(experience, world), 384)
    world.rounds.clear()
    world.write(learning(experience, world), 768)
    drafted_at = {0: 0, 1: 0}
    at = 0
    for r in world.rounds:
        if at % 96 >= 32:  # what it does once the change is 32 tokens old
            drafted_at[at // 96 % 2] += r.drafted
        at += len(r.tokens)
    assert drafted_at[1] > 5 * drafted_at[0]


def test_the_first_answer_of_a_pair_known_from_before_is_as_fast_as_the_later_ones() -> None:
    world = World(graphics, 0.1)
    experience = Experience()
    later = mean(speeds(world, experience)[3:])
    firsts = []  # one answer alone is a matter of luck
    for seed in range(6):
        known = Experience.from_plain(experience.to_plain())
        firsts.append(speeds(replace(world, rounds=[], seed=seed + 9), known)[0])
    assert mean(firsts) > 0.9 * later


# -- never slower -------------------------------------------------------------------------------------------------

BAD = {
    "random weights": World(processor, 0.17, confidence=useless, chance=lambda at, confidence: 0.0),
    "sure and wrong": World(processor, 0.17, confidence=sure, chance=lambda at, confidence: 0.05),
    "sure and wrong on a GPU": World(graphics, 0.1, confidence=sure, chance=lambda at, confidence: 0.05),
    "the target itself": World(processor, 1.0, confidence=sure, chance=lambda at, confidence: 0.99),
    "the target itself on a GPU": World(graphics, 1.0, confidence=sure, chance=lambda at, confidence: 0.99),
    "nearly as slow as the target": World(processor, 0.62, confidence=sure, chance=lambda at, confidence: 0.9),
    "right only at the start": World(
        processor, 0.17, confidence=sure, chance=lambda at, confidence: 0.95 if at < 24 else 0.05
    ),
    "right only at the start, on a GPU": World(
        graphics, 0.1, confidence=sure, chance=lambda at, confidence: 0.95 if at < 24 else 0.05
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_draft_costs_next_to_nothing(kind: str) -> None:
    world = replace(BAD[kind], rounds=[])
    assert mean(speeds(world)[1:]) > 0.97


def test_looking_whether_it_pays_again_becomes_rare() -> None:
    world = replace(BAD["the target itself"], rounds=[])
    experience = Experience()
    steps = []
    for _ in range(12):
        before = world.draft_steps
        world.write(learning(experience, world), 512)
        steps.append(world.draft_steps - before)
    assert sum(steps[:4]) > 0, "it must look at all"
    assert sum(steps[6:]) < sum(steps[:6])


def test_a_draft_that_becomes_good_is_found_again() -> None:
    world = World(graphics, 0.1, confidence=useless, chance=lambda at, confidence: 0.0)
    experience = Experience()
    for _ in range(3):
        world.write(learning(experience, world), TOKENS)
    better = World(graphics, 0.1, confidence=sure, chance=lambda at, confidence: 0.95)
    last = [better.write(learning(experience, better), 512) for _ in range(6)][-1]
    assert last > 1.5 * plain_speed(better)


def test_no_draft_is_computed_before_time_was_measured() -> None:
    pace = LearningPacing(Experience(), "setting").begin(8, 100)
    assert not pace.goes_on(DrafterKind.model, 1)
    assert pace.cut(DrafterKind.lookup, [1.0] * 4) == 0


def test_another_program_on_the_cores_changes_little() -> None:
    calm, busy = World(graphics, 0.1, seed=4), World(graphics, 0.1, seed=4, outliers=0.05)
    lengths = []
    for world in (calm, busy):
        speeds(world)
        lengths.append(mean(r.drafted for r in world.rounds[-300:]))
    assert lengths[1] == pytest.approx(lengths[0], rel=0.35)


# -- ready drafts -------------------------------------------------------------------------------------------------


def known(world: World) -> LearningPacing:
    experience = Experience()
    speeds(world, experience)
    return learning(experience, world)


def test_a_ready_draft_is_cut_where_it_stops_being_sure() -> None:
    pacing = known(World(graphics, 0.1))
    acceptance = pacing.acceptance(DrafterKind.lookup)
    for _ in range(60):
        acceptance.observe([0.99], 1, 1)
        acceptance.observe([0.1], 0, 1)
    pace = pacing.begin(16, 100)
    assert pace.cut(DrafterKind.lookup, [0.99] * 6 + [0.1] * 6) in (6, 7)
    assert pace.cut(DrafterKind.lookup, [0.1] * 6) <= 1
    assert pace.cut(DrafterKind.lookup, []) == 0


def test_a_ready_draft_gives_way_to_a_model_that_brings_more() -> None:
    pacing = known(World(graphics, 0.05, confidence=sure, chance=lambda at, confidence: 0.97))
    for _ in range(60):
        pacing.acceptance(DrafterKind.lookup).observe([0.5], 0, 1)
    pace = pacing.begin(16, 100)
    assert pace.cut(DrafterKind.lookup, [0.5], rival=1) == 0
    assert pace.cut(DrafterKind.lookup, [0.995] * 16, rival=1) == 16


# -- the rule -----------------------------------------------------------------------------------------------------


def test_the_policy_is_the_best_there_is() -> None:
    """Against the whole tree of what may happen and be chosen, for two levels of confidence and up to three tokens."""
    target_s, draft_s, rate, levels = np.array([1.0, 1.4, 1.5, 2.1]), 0.2, 0.8, (3, BINS - 1)
    rates, ahead = np.zeros(BINS), np.zeros((2, BINS))
    rates[3], rates[-1] = 0.3, 0.9
    ahead[0, 3], ahead[0, -1], ahead[1, 3], ahead[1, -1] = 0.5, 0.5, 0.3, 0.7

    def stop(n: int) -> float:
        return float(-rate * target_s[n])

    def best(n: int, survival: float) -> float:
        return max(stop(n), go(n, survival)) if n < 3 else stop(n)

    def go(n: int, survival: float) -> float:
        shown = (ahead[min(n, 1), at] * max(stop(n), take(n, survival, at)) for at in levels)
        return float(sum(shown)) - rate * draft_s

    def take(n: int, survival: float, at: int) -> float:
        return float(survival * rates[at] + best(n + 1, survival * rates[at]))

    policy = Policy(target_s, draft_s, rates, ahead, rate)
    assert policy.surplus == pytest.approx(1 + best(0, 1.0), abs=0.005)  # the grid of survivals has gaps
    for n, survival in itertools.product(range(3), (1.0, 0.5, 0.1)):
        assert policy.going(n, survival) == pytest.approx(go(n, survival) - stop(n), abs=0.005)
        for at in levels:
            assert policy.taking(n, survival, at) == pytest.approx(take(n, survival, at) - stop(n), abs=0.005)


def test_a_free_draft_in_a_free_batch_is_taken_to_the_end() -> None:
    policy = Policy(np.ones(MAX_DRAFT_LENGTH + 1), 0.0, np.full(BINS, 0.5), np.full((2, BINS), 1 / BINS), 1.0)
    assert policy.ready([5] * 16) == (16, pytest.approx(1.0, abs=1e-4))
    assert all(policy.going(n, 1.0) > 0 for n in range(MAX_DRAFT_LENGTH))


# -- what it says -------------------------------------------------------------------------------------------------


def test_its_state_is_told_in_words_and_figures() -> None:
    good, bad = World(graphics, 0.1), replace(BAD["random weights"], rounds=[])
    reports = []
    for world in (good, bad):
        experience = Experience()
        for _ in range(3):
            pacing = learning(experience, world)
            world.write(pacing, TOKENS)
        reports.append(pacing.report())
    assert reports[0].state == "on"
    assert reports[0].sentence == f"On: usually {round(reports[0].typical_length)} draft tokens a round."
    assert reports[1].state == "paused"
    assert reports[1].sentence == "Paused: plain is faster here."
    for report in reports:
        assert report.plain_tokens_per_s == pytest.approx(1 / UNIT, rel=0.05)
        assert report.target_ms[1] == pytest.approx(1000 * UNIT, rel=0.05)


def test_acceptance_counts_only_what_was_tested() -> None:
    acceptance = Acceptance()
    before = acceptance.rates()
    acceptance.observe([0.9, 0.9, 0.9, 0.9], accepted=4, tested=4)
    all_accepted = acceptance.tested.sum()
    acceptance.observe([0.9, 0.9, 0.9, 0.9], accepted=1, tested=2)
    assert all_accepted == pytest.approx(4, rel=0.05)
    assert acceptance.tested.sum() == pytest.approx(6, rel=0.05)
    assert (acceptance.rates() <= 0.999).all()
    assert acceptance.rates()[0] == pytest.approx(before[0], rel=0.3)
