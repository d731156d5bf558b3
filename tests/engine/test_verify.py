"""The verdict, on distributions small enough to know by hand."""

from __future__ import annotations

import numpy as np
import pytest

from app.engine.rounds import DrafterKind, TokenSource
from app.engine.sampling import Distribution
from app.engine.verify import Draft, Rejection, residual


def dist(**probs: float) -> Distribution:
    """dist(a=.5, c=.5): tokens 0 and 2."""
    ids = [ord(name) - ord("a") for name in probs]
    return Distribution(np.array(ids), np.array(list(probs.values())))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def verdict_on(tokens: list[int], drafted: list[Distribution], target: list[Distribution]):  # type: ignore[no-untyped-def]
    return Rejection(rng()).verify(Draft(DrafterKind.model, tokens, drafted), target.__getitem__, 0)


def test_an_empty_draft_gives_a_plain_token() -> None:
    verdict = verdict_on([], [], [dist(b=1.0)])
    assert (verdict.accepted, verdict.token, verdict.source) == (0, 1, TokenSource.plain)


def test_a_draft_like_the_target_is_accepted_whole_and_earns_a_bonus() -> None:
    d = dist(a=0.4, b=0.6)
    for seed in range(50):
        verdict = Rejection(np.random.default_rng(seed)).verify(
            Draft(DrafterKind.model, [0, 1, 1], [d] * 3), lambda i: d, 0
        )
        assert verdict.accepted == 3
        assert verdict.source is TokenSource.bonus


def test_greedy_is_the_limit_of_the_rule() -> None:
    sure = [Distribution.certain(t) for t in (4, 5, 6, 7)]
    verdict = verdict_on([4, 5, 9], [Distribution.certain(t) for t in (4, 5, 9)], sure)
    assert (verdict.accepted, verdict.token, verdict.source) == (2, 6, TokenSource.recovered)


def test_what_the_target_cannot_draw_is_never_accepted() -> None:
    verdict = verdict_on([2], [dist(c=1.0)], [dist(a=0.5, b=0.5)])
    assert verdict.accepted == 0
    assert verdict.token in (0, 1)


def test_rows_behind_the_first_rejection_are_not_asked_for() -> None:
    asked = []

    def at(i: int) -> Distribution:
        asked.append(i)
        return Distribution.certain(0)

    Rejection(rng()).verify(Draft(DrafterKind.model, [1, 0, 0], [Distribution.certain(t) for t in (1, 0, 0)]), at, 0)
    assert asked == [0]


def test_the_residual_is_the_positive_difference() -> None:
    got = residual(dist(a=0.5, b=0.3, c=0.2), dist(a=0.7, b=0.1, d=0.2))
    assert got.ids.tolist() == [0, 1, 2]
    assert got.probs == pytest.approx([0.0, 0.5, 0.5])


def test_the_residual_of_disjoint_distributions_is_the_target() -> None:
    got = residual(dist(a=0.5, b=0.5), dist(c=0.5, e=0.5))
    assert got.probs == pytest.approx([0.5, 0.5])


def test_the_residual_of_equal_distributions_is_the_target() -> None:
    d = dist(a=0.5, b=0.5)
    assert residual(d, d).probs == pytest.approx([0.5, 0.5])


def test_acceptance_has_the_probability_of_the_rule() -> None:
    drafted, target = dist(a=0.8, b=0.2), dist(a=0.4, b=0.6)
    generator = np.random.default_rng(3)
    n = 20_000
    accepted = sum(
        Rejection(generator).verify(Draft(DrafterKind.model, [0], [drafted]), lambda i: target, 0).accepted
        for _ in range(n)
    )
    assert accepted / n == pytest.approx(0.5, abs=0.02)
