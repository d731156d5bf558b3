"""The promise: every emitted token is distributed as the target's own sampling, whatever the draft is.

Answers of four tokens over a small vocabulary go through the whole loop and are compared, as sequences, with the
target's own distribution computed by enumeration. The same test must fail when the rule is broken on purpose.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from app.engine.drafters import Drafter, ModelDrafter
from app.engine.generate import Answer, generate
from app.engine.pacing import FixedPacing, Pace
from app.engine.protocol import SamplingParams
from app.engine.rounds import DrafterKind, TokenSource
from app.engine.sampling import Distribution, Sampler, distribution, recent_tokens
from app.engine.verify import Draft, Rejection, Rule, TargetProbs, Verdict
from tests.support.tables import PlainText, TableMemory, random_table

N_VOCAB, LENGTH, START, ROUNDS = 5, 4, 0, 20_000
TARGET = random_table(N_VOCAB, seed=1, spread=1.2)
OPEN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

DRAFTS = {
    "the target itself": TARGET,
    "near": TARGET + random_table(N_VOCAB, seed=2, spread=0.4),
    "far": random_table(N_VOCAB, seed=3, spread=2.0),
}
SETTINGS = {
    "temperature": SamplingParams(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0),
    "top-k": SamplingParams(temperature=1.0, top_k=3, top_p=1.0, min_p=0.0),
    "top-p": SamplingParams(temperature=1.2, top_k=0, top_p=0.8, min_p=0.0),
    "min-p": SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.15),
    "penalty": SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.5, repeat_last_n=3),
    "all": SamplingParams(temperature=0.9, top_k=4, top_p=0.95, min_p=0.05, repeat_penalty=1.3, repeat_last_n=2),
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
    make_rule: Callable[[np.random.Generator], Rule] = Rejection,
) -> Sample:
    """Answers until ROUNDS rounds had a draft. None: the disjoint drafter."""
    rule, sampler = make_rule(np.random.default_rng(17)), Sampler(params)
    target_memory = TableMemory(target)
    if draft_table is None:
        drafter: Drafter = DisjointDrafter()
    else:
        drafter = ModelDrafter(TableMemory(draft_table), sampler, rule, vocabulary_size=len(target))
    got = Sample(Counter(), 0, 0)
    while got.drafted_rounds < ROUNDS:
        answer = Answer(PlainText(), is_end=lambda token: False, max_tokens=LENGTH)  # type: ignore[arg-type]
        for r in generate(target_memory, drafter, [START], answer, sampler=sampler, rule=rule, pacing=FixedPacing(3)):
            got.drafted_rounds += r.drafted > 0
            got.accepted += r.accepted
            assert r.drafted == r.accepted + r.rejected + r.discarded
        got.answers[tuple(token.id for token in answer.tokens)] += 1
    return got


def expected(params: SamplingParams, target: np.ndarray = TARGET) -> dict[tuple[int, ...], float]:
    """The probability of every answer under the target alone."""
    result = {}
    for answer in itertools.product(range(len(target)), repeat=LENGTH):
        text, p = [START], 1.0
        for token in answer:
            recent = recent_tokens(params, text, ())
            p *= distribution(target[text[-1]], params, recent).probability(token)
            text.append(token)
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
    params = SETTINGS[setting]
    got = sample(DRAFTS["near"], params)
    assert p_value(got.answers, expected(params)) > 0.001
    assert got.accepted > 0


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
    got = sample(DRAFTS["far"], OPEN, make_rule=broken)
    assert p_value(got.answers, expected(OPEN)) < 1e-6
