"""The promise: every emitted token is distributed as the target's own sampling, whatever the draft is.

Answers of four tokens over a small vocabulary go through the whole loop and are compared, as sequences, with the
target's own distribution computed by enumeration. The same test must fail when the rule is broken on purpose.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from app.engine.drafters import Drafter, ModelDrafter
from app.engine.generate import Answer, generate
from app.engine.pacing import FixedPacing, Pace
from app.engine.protocol import SamplingParams
from app.engine.rounds import DrafterKind, TokenSource
from app.engine.sampling import Distribution, Sampler
from app.engine.verify import Comparison, Coupled, Draft, Rejection, Rule, TargetProbs, Verdict
from tests.support.tables import PlainText, TableMemory, random_table

pytestmark = pytest.mark.slow

N_VOCAB, LENGTH, START, ROUNDS = 5, 4, 0, 20_000
TARGET = random_table(N_VOCAB, seed=1, spread=1.2)
OPEN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

DRAFTS = {
    "the target itself": TARGET,
    "near": TARGET + random_table(N_VOCAB, seed=2, spread=0.4),
    "far": random_table(N_VOCAB, seed=3, spread=2.0),
}
# With a fixed distribution: the rejection rule may serve. On top of OPEN.
SETTINGS = {
    "temperature": {"temperature": 0.7},
    "top-k": {"top_k": 3},
    "top-p": {"temperature": 1.2, "top_p": 0.8},
    "min-p": {"min_p": 0.15},
    "typical-p": {"typical_p": 0.8},
    "top-n-sigma": {"top_n_sigma": 1.5},
    "dynamic temperature": {"temperature": 0.9, "dynatemp_range": 0.5, "dynatemp_exponent": 1.3},
    "repeat penalty": {"repeat_penalty": 1.5, "repeat_last_n": 3},
    "frequency and presence": {"frequency_penalty": 0.6, "presence_penalty": -0.3, "repeat_last_n": 3},
    "DRY": {"dry_multiplier": 1.0, "dry_allowed_length": 1, "dry_last_n": 4},
    "logit bias": {"logit_bias": ((1, 1.5), (3, -0.5))},
    "temperature first": {"temperature": 0.6, "top_p": 0.9, "min_p": 0.05, "order": ("temperature", "min_p", "top_p")},
    "all": {
        "temperature": 0.9, "top_k": 4, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.3, "repeat_last_n": 2,
        "typical_p": 0.97, "top_n_sigma": 2.5, "dry_multiplier": 0.5, "dry_allowed_length": 1, "dynatemp_range": 0.2,
    },
}  # fmt: skip
# Without one: drafts are compared.
UNFIXED = {
    "XTC": {"xtc_probability": 0.4, "xtc_threshold": 0.2},
    "XTC behind top-k": {"xtc_probability": 0.6, "xtc_threshold": 0.1, "top_k": 4, "temperature": 0.8},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 1.5, "mirostat_eta": 0.8},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 1.5, "mirostat_eta": 0.8, "repeat_penalty": 1.2},
}


class DisjointDrafter:
    """Always proposes, with certainty, a token that the target cannot draw: everything is rejected."""

    kind = DrafterKind.model
    paused = None

    def begin(self, tokens: object) -> None: ...

    def draft(self, pace: Pace) -> Draft:
        return Draft(self.kind, [N_VOCAB] * pace.limit, [Distribution.certain(N_VOCAB)] * pace.limit)

    def commit(self, tokens: object, accepted: int) -> None: ...


@dataclass
class Sample:
    answers: Counter[tuple[int, ...]]
    drafted_rounds: int
    accepted: int


def sample(
    draft_table: np.ndarray | None,
    params: SamplingParams,
    target: np.ndarray = TARGET,
    make_rule: Callable[[int], Rule] = lambda seed: Rejection(np.random.default_rng(seed)),
) -> Sample:
    """Answers, each with a seed of its own, until ROUNDS rounds had a draft. None: the disjoint drafter."""
    got = Sample(Counter(), 0, 0)
    target_memory = TableMemory(target)
    draft_memory = TableMemory(draft_table if draft_table is not None else target)
    for seed in itertools.count(17):
        if got.drafted_rounds >= ROUNDS:
            break
        rule, sampler = make_rule(seed), Sampler(params, seed=seed)
        drafter: Drafter = DisjointDrafter()
        if draft_table is not None:
            drafter = ModelDrafter(draft_memory, sampler, rule, vocabulary_size=len(target))
        answer = Answer(PlainText(), is_end=lambda token: False, max_tokens=LENGTH)  # type: ignore[arg-type]
        for r in generate(target_memory, drafter, [START], answer, sampler=sampler, rule=rule, pacing=FixedPacing(3)):
            got.drafted_rounds += r.drafted > 0
            got.accepted += r.accepted
            assert r.drafted == r.accepted + r.rejected + r.discarded
        got.answers[tuple(token.id for token in answer.tokens)] += 1
    return got


def expected(params: SamplingParams, target: np.ndarray = TARGET) -> dict[tuple[int, ...], float]:
    """The probability of every answer under the target alone, over all seeds."""
    # XTC's coins are independent of each other, so each position is a mixture of two distributions.
    chance = params.xtc_probability
    cases = [(1 - chance, replace(params, xtc_probability=0.0)), (chance, replace(params, xtc_probability=1.0))]
    result = {}
    for answer in itertools.product(range(len(target)), repeat=LENGTH):
        samplers = [(weight, Sampler(case)) for weight, case in cases if weight > 0]
        text, p = [START], 1.0
        for token in answer:
            logits = target[text[-1]]
            p *= sum(weight * sampler.distribution(logits, text).probability(token) for weight, sampler in samplers)
            if p == 0:
                break
            text.append(token)
            for _, sampler in samplers:
                sampler.commit([token])
        if p > 0:
            result[answer] = p
    assert sum(result.values()) == pytest.approx(1.0)
    return result


def p_value(got: Counter[tuple[int, ...]], want: dict[tuple[int, ...], float]) -> float:
    """Chi-square, cells below five expected counts pooled. Answers that cannot be give 0."""
    if set(got) - set(want):
        return 0.0
    n = sum(got.values())
    observed, wanted, rare_observed, rare_wanted = [], [], 0, 0.0
    for answer, p in want.items():
        if p * n >= 5:
            observed.append(got[answer])
            wanted.append(p * n)
        else:
            rare_observed += got[answer]
            rare_wanted += p * n
    if rare_wanted > 0:
        observed.append(rare_observed)
        wanted.append(rare_wanted)
    assert len(observed) > 10
    return float(stats.chisquare(observed, np.array(wanted) * (sum(observed) / sum(wanted))).pvalue)


@pytest.mark.parametrize("draft", DRAFTS)
def test_any_draft_leaves_the_targets_distribution(draft: str) -> None:
    got = sample(DRAFTS[draft], OPEN)
    assert p_value(got.answers, expected(OPEN)) > 0.001
    assert got.accepted > 0


def test_a_disjoint_draft_leaves_the_targets_distribution() -> None:
    # One more token that the target never draws, and that is all the draft proposes.
    target = np.full((N_VOCAB + 1, N_VOCAB + 1), -40.0, dtype=np.float32)
    target[:N_VOCAB, :N_VOCAB] = TARGET
    params = SamplingParams(temperature=1.0, top_k=N_VOCAB, top_p=1.0, min_p=0.0)
    got = sample(None, params, target)
    assert got.accepted == 0
    assert p_value(got.answers, expected(params, target)) > 0.001


@pytest.mark.parametrize("setting", SETTINGS)
def test_any_setting_leaves_the_targets_distribution(setting: str) -> None:
    params = replace(OPEN, **SETTINGS[setting])
    assert not Sampler(params).needs_comparison
    got = sample(DRAFTS["near"], params)
    assert p_value(got.answers, expected(params)) > 0.001
    assert got.accepted > 0


RULES = {"comparison": lambda seed: Comparison(np.random.default_rng(seed)), "coupled": Coupled}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("setting", UNFIXED)
def test_samplers_without_a_fixed_distribution_are_exact_by_comparison(setting: str, rule: str) -> None:
    params = replace(OPEN, **UNFIXED[setting])
    assert Sampler(params).needs_comparison
    got = sample(DRAFTS["near"], params, make_rule=RULES[rule])
    assert p_value(got.answers, expected(params)) > 0.001
    assert got.accepted > 0


@pytest.mark.parametrize("setting", [*SETTINGS, *UNFIXED])
def test_coupled_answers_depend_on_the_seed_alone(setting: str) -> None:
    params = replace(OPEN, **(SETTINGS | UNFIXED)[setting])

    def answer_of(seed: int, length: int, draft: np.ndarray) -> list[int]:
        sampler, rule = Sampler(params, seed=seed), Coupled(seed)
        drafter = ModelDrafter(TableMemory(draft), sampler, rule, vocabulary_size=N_VOCAB)
        answer = Answer(PlainText(), is_end=lambda token: False, max_tokens=30)  # type: ignore[arg-type]
        memory, pacing = TableMemory(TARGET), FixedPacing(length)
        for _ in generate(memory, drafter, [START], answer, sampler=sampler, rule=rule, pacing=pacing):
            pass
        return [token.id for token in answer.tokens]

    plain = [answer_of(seed, 0, TARGET) for seed in range(20)]
    assert len(set(map(tuple, plain))) > 15
    for length, draft in itertools.product((1, 3, 7), DRAFTS.values()):
        assert [answer_of(seed, length, draft) for seed in range(20)] == plain


class AcceptEverything(Rejection):
    def verify(self, draft: Draft, target_probs_at: TargetProbs, position: int) -> Verdict:
        source = TokenSource.bonus if len(draft) else TokenSource.plain
        return Verdict(len(draft), target_probs_at(len(draft)).draw(self._rng), source)


class RecoverWithoutSubtracting(Rejection):
    def verify(self, draft: Draft, target_probs_at: TargetProbs, position: int) -> Verdict:
        verdict = super().verify(draft, target_probs_at, position)
        if verdict.source is TokenSource.recovered:
            return Verdict(verdict.accepted, target_probs_at(verdict.accepted).draw(self._rng), verdict.source)
        return verdict


@pytest.mark.parametrize("broken", [AcceptEverything, RecoverWithoutSubtracting])
def test_a_broken_rule_is_noticed(broken: type[Rejection]) -> None:
    got = sample(DRAFTS["far"], OPEN, make_rule=lambda seed: broken(np.random.default_rng(seed)))
    assert p_value(got.answers, expected(OPEN)) < 1e-6
