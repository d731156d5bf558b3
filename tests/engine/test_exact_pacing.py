"""The promise of exactness where drafts are paced, chained, compared or coupled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from app.engine.drafters import ChainedDrafter, Drafter, ModelDrafter, NoDrafter
from app.engine.experience import Experience
from app.engine.generate import Answer, generate
from app.engine.lookup import LookupDrafter
from app.engine.pacing import FixedPacing, LearningPacing, Pacing
from app.engine.protocol import PacingReport, SamplingParams
from app.engine.rounds import DrafterKind, Round, RoundTimes
from app.engine.sampling import Sampler
from app.engine.verify import Comparison, Coupled, Draft, Rejection, Rule
from tests.engine.test_exactness import DRAFTS, LENGTH, N_VOCAB, OPEN, START, TARGET, expected, p_value
from tests.support.tables import PlainText, TableMemory, random_table

pytestmark = pytest.mark.slow

N_ANSWERS = 8_000
PROMPT = [START, 1, 2, 3, 1, 2, START]  # something to look up


class MoodyPacing:
    """Lets everything a pacing may know decide: confidences, positions, what earlier rounds brought."""

    needs_confidence = True

    def __init__(self) -> None:
        self.mood = 0

    def begin(self, limit: int, remaining: int) -> _MoodyPace:
        return _MoodyPace(limit, self.mood)

    def observe_prompt(self, n_tokens: int, seconds: float) -> None: ...

    def observe(self, finished: Round, draft: Draft, target_confidence: float = 1.0, lag: int = 0) -> None:
        self.mood = (self.mood * 5 + finished.accepted * 3 + finished.rejected + (target_confidence > 0.5)) % 7

    def report(self) -> PacingReport:
        return PacingReport("on", "On.")


class _MoodyPace:
    needs_confidence = True

    def __init__(self, limit: int, mood: int) -> None:
        self.limit = limit
        self._mood = mood
        self._taken = 0

    def goes_on(self, kind: DrafterKind, pending: int) -> bool:
        return self._taken < self.limit and (pending + self._mood + self._taken) % 5 != 0

    def takes(self, kind: DrafterKind, confidence: float) -> bool:
        self._taken += 1
        return confidence > 0.3 or self._mood % 2 == 0

    def cut(self, kind: DrafterKind, confidences: Sequence[float], rival: int | None = None) -> int:
        return sum(c > 0.2 * (self._mood % 3) for c in confidences) if self._mood != 4 else 0


class TimedLearning(LearningPacing):
    """Learns from times as a GPU has them, because a table takes none."""

    def __init__(self) -> None:
        super().__init__(Experience(), "setting")

    def observe(self, finished: Round, draft: Draft, target_confidence: float = 1.0, lag: int = 0) -> None:
        draft.steps = [(n, 0.1) for n, _ in draft.steps]
        times = RoundTimes(draft.seconds, 1.0 + 0.02 * finished.drafted, 0.0)
        super().observe(finished._replace(times=times), draft, target_confidence, lag)


def model(sampler: Sampler, rule: Rule) -> ModelDrafter:
    return ModelDrafter(TableMemory(DRAFTS["near"]), sampler, rule, vocabulary_size=N_VOCAB)


DRAFTERS: dict[str, Callable[[Sampler, Rule], Drafter]] = {
    "model": model,
    "lookup": lambda sampler, rule: LookupDrafter(),
    "chained": lambda sampler, rule: ChainedDrafter(LookupDrafter(), model(sampler, rule)),
}
PACINGS: dict[str, Callable[[], Pacing]] = {
    "fixed": lambda: FixedPacing(3),
    "moody": MoodyPacing,
    "learning": TimedLearning,
}


def sample(
    drafter_name: str, make_pacing: Callable[[], Pacing], make_rule: Callable[[np.random.Generator], Rule]
) -> Counter[tuple[int, ...]]:
    """Many answers, with one pacing that goes on learning."""
    sampler, rule, pacing = Sampler(OPEN), make_rule(np.random.default_rng(23)), make_pacing()
    drafter, target = DRAFTERS[drafter_name](sampler, rule), TableMemory(TARGET)
    answers: Counter[tuple[int, ...]] = Counter()
    drafted = accepted = rejected = 0
    for _ in range(N_ANSWERS):
        answer = Answer(PlainText(), is_end=lambda token: False, max_tokens=LENGTH)  # type: ignore[arg-type]
        for r in generate(target, drafter, PROMPT, answer, sampler=sampler, rule=rule, pacing=pacing):
            drafted += r.drafted > 0
            accepted += r.accepted
            rejected += r.rejected
        answers[tuple(token.id for token in answer.tokens)] += 1
    assert drafted > N_ANSWERS / 20
    assert min(accepted, rejected) > N_ANSWERS / 50
    return answers


@pytest.mark.parametrize("pacing", PACINGS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_no_pacing_and_no_chain_changes_the_distribution(drafter: str, pacing: str) -> None:
    assert p_value(sample(drafter, PACINGS[pacing], Rejection), expected(OPEN)) > 0.001


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_comparing_leaves_the_targets_distribution(drafter: str) -> None:
    assert p_value(sample(drafter, MoodyPacing, Comparison), expected(OPEN)) > 0.001


class FreshlyCoupled:
    """Coupled, with another seed for every round, so that many rounds make a sample."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._rule = Coupled(0)

    def draw(self, probs, position: int) -> int:  # type: ignore[no-untyped-def]
        return self._rule.draw(probs, position)

    def verify(self, draft, target_probs_at, position: int):  # type: ignore[no-untyped-def]
        verdict = self._rule.verify(draft, target_probs_at, position)
        self._rule = Coupled(int(self._rng.integers(2**63)))
        return verdict


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_coupling_leaves_the_targets_distribution(drafter: str) -> None:
    assert p_value(sample(drafter, MoodyPacing, FreshlyCoupled), expected(OPEN)) > 0.001


# -- coupled: the seed alone decides ------------------------------------------------------------------------------

LARGE = 300
LARGE_TARGET = random_table(LARGE, seed=8, spread=1.5)
LARGE_DRAFTS = {
    "itself": LARGE_TARGET,
    "near": LARGE_TARGET + random_table(LARGE, seed=9, spread=0.5),
    "far": random_table(LARGE, seed=10),
}
SETTINGS = {
    "open": OPEN,
    "usual": SamplingParams(temperature=0.8),
    "penalty": SamplingParams(temperature=1.0, repeat_penalty=1.2),
    "greedy": SamplingParams(temperature=0),
}


def coupled(
    params: SamplingParams,
    seed: int,
    make: Callable[[Sampler, Rule], Drafter],
    pacing: Pacing,
    *,
    must_accept: bool = False,
) -> list[int]:
    sampler, rule = Sampler(params), Coupled(seed)
    answer = Answer(PlainText(), is_end=lambda token: False, max_tokens=120)  # type: ignore[arg-type]
    target, drafter = TableMemory(LARGE_TARGET), make(sampler, rule)
    rounds = list(generate(target, drafter, [1, 2, 3], answer, sampler=sampler, rule=rule, pacing=pacing))
    if must_accept:
        assert sum(r.accepted for r in rounds) > 0
    return [token.id for token in answer.tokens]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", [1, 2, 2**62 + 5])
def test_the_same_seed_gives_the_same_answer_with_any_drafter_any_length_any_pacing_and_none(
    setting: str, seed: int
) -> None:
    params = SETTINGS[setting]
    want = coupled(params, seed, lambda sampler, rule: NoDrafter(), FixedPacing(0))
    for name, table in LARGE_DRAFTS.items():

        def drafting(sampler: Sampler, rule: Rule, table: np.ndarray = table) -> ModelDrafter:
            return ModelDrafter(TableMemory(table), sampler, rule, vocabulary_size=LARGE)

        def chained(sampler: Sampler, rule: Rule) -> ChainedDrafter:
            return ChainedDrafter(LookupDrafter(), drafting(sampler, rule))

        for pacing in (FixedPacing(1), FixedPacing(4), FixedPacing(16), MoodyPacing()):
            assert coupled(params, seed, drafting, pacing, must_accept=name != "far") == want
            assert coupled(params, seed, chained, pacing) == want
    assert coupled(params, seed, lambda sampler, rule: LookupDrafter(), FixedPacing(4)) == want


def test_coupled_answers_differ_by_seed() -> None:
    none = lambda sampler, rule: NoDrafter()  # noqa: E731
    answers = {tuple(coupled(OPEN, seed, none, FixedPacing(0))) for seed in range(20)}
    assert len(answers) == 20


def test_a_coupled_draft_is_accepted_more_often_than_an_independent_one() -> None:
    """That is what the coupling is for: draws of near distributions agree."""
    sampler, target = Sampler(OPEN), TableMemory(LARGE_TARGET)
    share = {}
    for name, rule in (("coupled", Coupled(3)), ("independent", Comparison(np.random.default_rng(3)))):
        answer = Answer(PlainText(), is_end=lambda token: False, max_tokens=1500)  # type: ignore[arg-type]
        drafter = ModelDrafter(TableMemory(LARGE_DRAFTS["near"]), sampler, rule, vocabulary_size=LARGE)
        rounds = list(generate(target, drafter, [1], answer, sampler=sampler, rule=rule, pacing=FixedPacing(1)))
        share[name] = sum(r.accepted for r in rounds) / sum(r.drafted for r in rounds)
    assert share["coupled"] > share["independent"] + 0.2
