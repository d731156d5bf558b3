"""Filters and draws, against slow and obvious versions of themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from app.engine.protocol import GenerationRequest, SamplingParams, SpeculationParams
from app.engine.sampling import Distribution, best_first, distribution, fresh_seed, recent_tokens, validate
from app.errors import UsageError

OPEN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

# Few distinct values, so that ties are the rule.
tied_logits = hnp.arrays(np.float32, st.integers(2, 700), elements=st.integers(-6, 6).map(float))


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    weights = np.exp((logits - logits.max()).astype(np.float64) / temperature)
    return weights / weights.sum()


@given(tied_logits, st.data())
def test_the_best_are_the_head_of_a_stable_sort(logits: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(logits) - 1))
    ids, values = best_first(logits, k)
    assert ids.tolist() == np.argsort(logits, kind="stable")[::-1][:k].tolist()
    assert values.tolist() == logits[ids].tolist()


@pytest.mark.parametrize("n_vocab", [2, 31, 32, 33, 1000, 49_152, 151_936])
@pytest.mark.parametrize("k", [1, 40, 2000])
def test_the_best_at_the_sizes_of_real_vocabularies(n_vocab: int, k: int) -> None:
    logits = np.random.default_rng(n_vocab).normal(size=n_vocab).astype(np.float32)
    k = min(k, n_vocab - 1)
    ids, values = best_first(logits, k)
    assert ids.tolist() == np.argsort(logits, kind="stable")[::-1][:k].tolist()
    assert values.tolist() == logits[ids].tolist()


@given(tied_logits, st.floats(0.05, 0.99))
def test_top_p_keeps_the_fewest_that_reach_it(logits: np.ndarray, top_p: float) -> None:
    got = distribution(logits, SamplingParams(temperature=1.0, top_k=0, top_p=top_p, min_p=0.0))
    probs = softmax(logits)
    kept = probs[got.ids].sum()
    assert kept >= top_p - 1e-9
    assert kept - probs[got.ids].min() < top_p + 1e-9
    assert probs[got.ids].min() >= np.delete(probs, got.ids).max(initial=0.0) - 1e-12


@given(tied_logits, st.floats(0.01, 1.0))
def test_min_p_keeps_what_reaches_its_share_of_the_best(logits: np.ndarray, min_p: float) -> None:
    got = distribution(logits, SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=min_p))
    probs = softmax(logits)
    clear_of_rounding = np.abs(probs / probs.max() - min_p) > 1e-5
    want = np.flatnonzero((probs / probs.max() >= min_p) & clear_of_rounding)
    assert set(want) <= set(got.ids)
    assert not set(got.ids) & set(np.flatnonzero((probs / probs.max() < min_p) & clear_of_rounding))


@given(tied_logits, st.sampled_from([0.2, 0.7, 1.0, 2.0]))
def test_open_settings_are_the_softmax(logits: np.ndarray, temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0)
    got = distribution(logits, params)
    assert got.ids.tolist() == list(range(len(logits)))
    assert got.probs == pytest.approx(softmax(logits, temperature))


@given(tied_logits)
def test_any_distribution_names_each_token_once_and_sums_to_one(logits: np.ndarray) -> None:
    params = SamplingParams(temperature=0.8, top_k=7, top_p=0.9, min_p=0.05, repeat_penalty=1.2)
    got = distribution(logits, params, recent=[0, 1, 1])
    assert len(set(got.ids.tolist())) == len(got.ids)
    assert got.probs.sum() == pytest.approx(1.0)
    assert len(got.ids) <= 7


@given(tied_logits)
def test_temperature_zero_is_the_argmax(logits: np.ndarray) -> None:
    for params in (SamplingParams(temperature=0.0), SamplingParams(temperature=1.0, top_k=1)):
        got = distribution(logits, params)
        assert got.ids.tolist() == [int(logits.argmax())]
        assert got.probs.tolist() == [1.0]


@pytest.mark.parametrize("temperature", [1e-6, 2.0, 100.0])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    logits = np.array([50.0, -50.0, 49.0, 0.0], dtype=np.float32)
    got = distribution(logits, SamplingParams(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0))
    assert np.isfinite(got.probs).all()
    assert got.probs.sum() == pytest.approx(1.0)


def test_top_k_zero_is_off_not_greedy() -> None:
    logits = np.zeros(100, dtype=np.float32)
    assert len(distribution(logits, OPEN).ids) == 100


def test_the_penalty_sees_only_the_last_tokens_and_each_once() -> None:
    logits = np.array([2.0, -2.0, 2.0, -2.0], dtype=np.float32)
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=2.0, repeat_last_n=3)
    recent = recent_tokens(params, [3, 2, 0], [0, 1])  # token 2 is too far back
    got = distribution(logits, params, recent)
    assert got.probs == pytest.approx(softmax(np.array([1.0, -4.0, 2.0, -2.0])))


def test_logits_are_left_as_they_were() -> None:
    logits = np.arange(50, dtype=np.float32)
    logits.flags.writeable = False
    distribution(logits, SamplingParams(repeat_penalty=1.5), recent=[1, 2], suppressed=np.array([49]))


def test_suppressed_tokens_never_survive() -> None:
    logits = np.array([0.0, 9.0, 1.0], dtype=np.float32)
    for params in (OPEN, SamplingParams(temperature=0)):
        got = distribution(logits, params, suppressed=np.array([1, 77]))
        assert got.probability(1) == 0.0


def test_draws_follow_the_probabilities_and_the_seed() -> None:
    probs = np.array([0.5, 0.3, 0.2])
    d = Distribution(np.array([3, 8, 11]), probs)
    draws = [d.draw(np.random.default_rng(5)) for _ in range(3)]
    assert len(set(draws)) == 1
    rng = np.random.default_rng(6)
    counts = np.bincount([d.draw(rng) for _ in range(20_000)], minlength=12)
    assert counts[[3, 8, 11]].sum() == 20_000
    assert counts[[3, 8, 11]] / 20_000 == pytest.approx(probs, abs=0.02)


@pytest.mark.parametrize(("token", "want"), [(3, 0.5), (8, 0.5), (0, 0.0), (5, 0.0), (99, 0.0)])
def test_probability_of_a_token_inside_between_and_outside(token: int, want: float) -> None:
    assert Distribution(np.array([3, 8]), np.array([0.5, 0.5])).probability(token) == want


def test_seeds_are_fresh() -> None:
    assert len({fresh_seed() for _ in range(20)}) > 15


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (GenerationRequest((), SamplingParams(temperature=-1)), "temperature"),
        (GenerationRequest((), SamplingParams(temperature=float("nan"))), "temperature"),
        (GenerationRequest((), SamplingParams(top_p=1.5)), "top-p"),
        (GenerationRequest((), SamplingParams(min_p=-0.1)), "min-p"),
        (GenerationRequest((), SamplingParams(top_k=-1)), "top-k"),
        (GenerationRequest((), SamplingParams(repeat_penalty=0)), "repeat penalty"),
        (GenerationRequest((), SamplingParams(seed=-3)), "seed"),
        (GenerationRequest((), max_tokens=0), "number of tokens"),
        (GenerationRequest((), speculation=SpeculationParams(draft_length=99)), "draft length"),
    ],
)
def test_settings_out_of_range_are_named(request_: GenerationRequest, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        validate(request_)
