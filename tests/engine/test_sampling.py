"""Filters and draws, against slow and obvious versions of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from app.engine.distribution import Distribution, Ids, Logits
from app.engine.filters import best_first
from app.engine.limits import RANGES, validate
from app.engine.noise import coin
from app.engine.protocol import SAMPLERS, GenerationRequest, SamplingParams, SpeculationParams
from app.engine.sampling import Sampler, active_samplers, comparison_note, fresh_seed
from app.errors import UsageError

OPEN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

# Few distinct values, so that ties are the rule.
tied_logits = hnp.arrays(np.float32, st.integers(2, 700), elements=st.integers(-6, 6).map(float))


def distribution(
    logits: Logits, params: SamplingParams, recent: Sequence[int] = (), suppressed: Ids | None = None
) -> Distribution:
    return Sampler(params, suppressed).distribution(logits, recent)


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
    got = Sampler(params).distribution(logits, [3, 2, 0], [0, 1])  # token 2 is too far back
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
        (GenerationRequest((), SamplingParams(xtc_threshold=1.5)), "threshold of XTC"),
        (GenerationRequest((), SamplingParams(mirostat=3)), "version of mirostat"),  # type: ignore[arg-type]
        (GenerationRequest((), SamplingParams(order=("top_k", "top_q"))), "'top_q'"),
        (GenerationRequest((), SamplingParams(order=("top_k", "top_k"))), "twice"),
        (GenerationRequest((), SamplingParams(logit_bias=((-1, 2.0),))), "token -1"),
        (GenerationRequest((), SamplingParams(logit_bias=((7, float("nan")),))), "token 7"),
        (GenerationRequest((), SamplingParams(dry_breakers=("",))), "breaker"),
    ],
)
def test_settings_out_of_range_are_named(request_: GenerationRequest, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        validate(request_)


def test_every_number_has_its_range() -> None:
    assert set(RANGES) == {f.name for f in fields(SamplingParams)} - {"logit_bias", "order", "dry_breakers"}
    validate(GenerationRequest((), SamplingParams()))


WORKING = {
    "penalties": {"frequency_penalty": 0.5},
    "dry": {"dry_multiplier": 0.8},
    "top_n_sigma": {"top_n_sigma": 1.0},
    "top_k": {"top_k": 3},
    "typical": {"typical_p": 0.5},
    "top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.2},
    "xtc": {"xtc_probability": 1.0},
    "temperature": {"temperature": 0.7},
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_off_is_really_absent(name: str) -> None:
    assert active_samplers(OPEN) == ()
    on = replace(OPEN, **WORKING[name])
    assert active_samplers(on) == (name,)
    assert active_samplers(replace(on, order=tuple(other for other in SAMPLERS if other != name))) == ()


@pytest.mark.parametrize(
    "off",
    [
        {"repeat_penalty": 1.5, "repeat_last_n": 0},
        {"dry_multiplier": 1.0, "dry_last_n": 0},
        {"xtc_probability": 1.0, "xtc_threshold": 0.6},
    ],
    ids=str,
)
def test_what_switches_another_value_off_leaves_it_out(off: dict[str, float]) -> None:
    assert active_samplers(replace(OPEN, **off)) == ()


def test_the_order_decides() -> None:
    """Two tokens of .6 and .4: with the temperature first, the second no longer reaches top-p."""
    logits = np.log(np.array([0.6, 0.4], dtype=np.float32))
    late = SamplingParams(temperature=0.2, top_k=0, top_p=0.8, min_p=0.0)
    assert len(distribution(logits, late).ids) == 2
    early = replace(late, order=("temperature", "top_p"))
    assert distribution(logits, early).ids.tolist() == [0]


EVERYTHING = SamplingParams(
    temperature=0.9,
    dynatemp_range=0.3,
    top_k=30,
    top_p=0.95,
    min_p=0.01,
    typical_p=0.95,
    top_n_sigma=2.5,
    repeat_penalty=1.2,
    frequency_penalty=0.3,
    presence_penalty=0.2,
    repeat_last_n=6,
    dry_multiplier=0.8,
    dry_last_n=9,
    xtc_probability=0.5,
    logit_bias=((4, 2.0), (77, 1.0)),
)


@given(tied_logits, st.data())
@settings(max_examples=200, deadline=None)
def test_a_draft_changes_no_distribution(logits: np.ndarray, data: st.DataObject) -> None:
    """The text is the same whether its end is committed or drafted, for every split (penalties, DRY, XTC's coin)."""
    text = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=30))
    split = data.draw(st.integers(max(0, len(text) - 16), len(text)))
    sampler = Sampler(EVERYTHING, seed=5)
    whole, parted = sampler.distribution(logits, text), sampler.distribution(logits, text[:split], text[split:])
    assert whole.ids.tolist() == parted.ids.tolist()
    assert whole.weights.tolist() == parted.weights.tolist()


@given(tied_logits)
def test_everything_at_once_leaves_a_distribution(logits: np.ndarray) -> None:
    logits.flags.writeable = False
    got = Sampler(EVERYTHING, np.array([0]), seed=1).distribution(logits, [1, 2, 1, 2, 1])
    assert got.probs.sum() == pytest.approx(1.0)
    assert len(set(got.ids.tolist())) == len(got.ids) <= 30
    assert 0 not in got.ids


def test_penalties_count_a_token_as_often_as_it_stands_there() -> None:
    logits = np.zeros(3, dtype=np.float32)
    params = replace(OPEN, frequency_penalty=0.5, presence_penalty=0.25)
    got = distribution(logits, params, [1, 1, 2])
    assert got.probs == pytest.approx(softmax(np.array([0.0, -1.25, -0.75])))


def test_a_run_of_accepted_tokens_counts_in_full() -> None:
    """Five tokens that came in one round weigh as much as five that came alone."""
    logits = np.zeros(8, dtype=np.float32)
    sampler = Sampler(replace(OPEN, frequency_penalty=1.0))
    assert sampler.distribution(logits, [0], [3, 3, 3, 3, 3]).probs == pytest.approx(
        softmax(np.array([-1.0, 0, 0, -5.0, 0, 0, 0, 0]))
    )


def test_dry_costs_what_a_repetition_is_long() -> None:
    logits = np.zeros(10, dtype=np.float32)
    params = replace(OPEN, dry_multiplier=1.0, dry_base=2.0, dry_allowed_length=2, dry_breakers=())
    got = distribution(logits, params, [1, 2, 3, 4, 9, 1, 2, 3])  # 4 would make the three four
    assert got.probs == pytest.approx(softmax(np.array([0, 0, 0, 0, -2.0, 0, 0, 0, 0, 0])))


def test_dry_does_not_reach_over_a_breaker() -> None:
    logits = np.zeros(10, dtype=np.float32)
    params = replace(OPEN, dry_multiplier=1.0, dry_allowed_length=1, dry_breakers=("stop",))
    text = [1, 2, 3, 4, 9, 1, 2, 3]
    over = Sampler(params, spellings=lambda breaker: [(2,)]).distribution(logits, text)
    assert over.probs == pytest.approx(softmax(np.array([0, 0, 0, 0, -1.0, 0, 0, 0, 0, 0])))
    at_the_end = Sampler(params, spellings=lambda breaker: [(2, 3)]).distribution(logits, text)
    assert at_the_end.probs == pytest.approx(np.full(10, 0.1))


def test_a_bias_applies_before_everything_and_only_to_what_there_is() -> None:
    logits = np.array([3.0, 2.0, 1.0], dtype=np.float32)
    params = SamplingParams(temperature=0.0, logit_bias=((2, 2.5), (3, 9.0)))
    assert distribution(logits, params).only == 2


@pytest.mark.parametrize("setting", [{"xtc_probability": 0.5}, {"mirostat": 2}, {"mirostat": 1}], ids=str)
def test_samplers_without_a_fixed_distribution_say_so(setting: dict[str, float]) -> None:
    params = replace(OPEN, **setting)
    assert Sampler(params).needs_comparison
    assert "exact" in (comparison_note(params) or "")
    # Where one token survives, all rules are one.
    assert not Sampler(replace(params, temperature=0.0)).needs_comparison
    assert comparison_note(OPEN) is None


def test_xtcs_coin_depends_on_seed_and_position_alone() -> None:
    logits = np.log(np.array([0.4, 0.35, 0.25], dtype=np.float32))
    params = replace(OPEN, xtc_probability=0.3, xtc_threshold=0.3)

    def has_fallen(seed: int, tokens: int, drafted: int = 0) -> bool:
        found = Sampler(params, seed=seed).distribution(logits, [0] * tokens, [1] * drafted)
        return found.ids.tolist() == [1, 2]

    fallen = [has_fallen(3, position) for position in range(1, 400)]
    assert fallen == [has_fallen(3, position) for position in range(1, 400)]
    assert fallen[9:] == [has_fallen(3, position - 8, 8) for position in range(10, 400)]
    assert fallen != [has_fallen(4, position) for position in range(1, 400)]
    assert 0.2 < sum(fallen) / len(fallen) < 0.4


def test_coins_are_uniform() -> None:
    coins = np.array([coin(seed, position) for seed in range(40) for position in range(100)])
    assert np.histogram(coins, bins=4, range=(0, 1))[0] == pytest.approx(1000, abs=150)


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_stands_where_the_emitted_tokens_put_it(version: int) -> None:
    """The same tokens in rounds of other lengths leave the same limit, bit by bit."""
    params = SamplingParams(temperature=0.9, mirostat=version, mirostat_tau=2.0, mirostat_eta=0.5)  # type: ignore[arg-type]
    rows = np.random.default_rng(1).normal(scale=2.0, size=(60, 90)).astype(np.float32)
    rng = np.random.default_rng(2)
    plain, text = Sampler(params), [0]
    limits = []
    for row in rows:
        token = plain.distribution(row, text).draw(rng)
        plain.commit([token])
        text.append(token)
        assert plain._mirostat is not None
        limits.append(plain._mirostat.limit)
    assert len(set(limits)) > 50

    drafted, done = Sampler(params), 0
    while done < len(rows):
        emitted = text[done + 1 : done + 1 + int(rng.integers(1, 6))]
        for i in range(len(emitted)):
            drafted.distribution(rows[done + i], text[: done + 1], emitted[:i])
        drafted.commit(emitted)
        done += len(emitted)
        assert drafted._mirostat is not None
        assert drafted._mirostat.limit == limits[done - 1]


def test_mirostat_is_not_moved_by_what_a_draft_asks() -> None:
    params = replace(OPEN, mirostat=2, mirostat_tau=2.0)
    logits = np.random.default_rng(3).normal(size=50).astype(np.float32)
    sampler = Sampler(params)
    draft = sampler.for_draft()
    for i in range(3):
        draft.distribution(logits, [0], [1] * i)
    wanted = sampler.distribution(logits, [0])
    sampler.commit([int(wanted.ids[0])])
    behind = sampler.distribution(logits, [0, 1])
    # The draft's sampler stands where the target's stood at the last commit.
    assert draft.distribution(logits, [0, 1]).weights.tolist() == behind.weights.tolist()
    assert sampler._mirostat is not None
    assert sampler._mirostat.limit != 2 * params.mirostat_tau
