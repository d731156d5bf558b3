"""Answers with a draft of another vocabulary are those of the target alone, on tables and on real models."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from app.chat import Message, Role
from app.engine.context import Context
from app.engine.drafters import Drafter, NoDrafter
from app.engine.generate import Answer, generate
from app.engine.llama import CancelFlag, Library
from app.engine.model import Model
from app.engine.pacing import FixedPacing
from app.engine.prompt import PromptBuilder
from app.engine.protocol import SamplingParams
from app.engine.rounds import Round, StopReason
from app.engine.sampling import Sampler
from app.engine.text import TextStream
from app.engine.translation import TranslatedDrafter, draft_sampler
from app.engine.verify import Coupled, Rejection, Rule
from tests.support.models import Models
from tests.support.prompts import ByteVocabulary
from tests.support.tables import PlainText, TableMemory, random_table
from tests.support.words import BYTES, GREEDY, OPEN, WORDS, WordVocabulary, translated


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


# -- exactness ----------------------------------------------------------------------------------------------------


def write(
    target: TableMemory, drafter: Drafter, params: SamplingParams, rule: Rule, prompt: Sequence[int], tokens: int = 60
) -> tuple[list[int], list[Round]]:
    answer = Answer(PlainText(), lambda token: False, tokens)
    pacing, sampler = FixedPacing(4), Sampler(params)
    rounds = list(generate(target, drafter, prompt, answer, sampler=sampler, rule=rule, pacing=pacing))
    assert answer.stop_reason is StopReason.max_tokens
    return [token.id for token in answer.tokens], rounds


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=0.9, top_k=5)])
@pytest.mark.parametrize("pair", [(BYTES, WORDS), (WORDS, BYTES), (WORDS, WORDS)])
@pytest.mark.parametrize("agreement", [0.3, 3.0])
def test_the_tokens_are_those_of_plain_decoding(
    pair: tuple[ByteVocabulary, WordVocabulary], params: SamplingParams, agreement: float
) -> None:
    # Coupled: at any temperature the answer depends on the seed alone, so the whole loop can be compared.
    target_words, draft_words = pair
    table = random_table(target_words.n_tokens, seed=1)
    draft_table = random_table(draft_words.n_tokens, seed=2)
    for before, after in ((ord("t"), ord("h")), (ord("h"), ord("e"))):  # something they agree on
        table[before, after] = agreement * 4
        draft_table[draft_words.tokenize(chr(before), add_special=False, parse_special=False)[-1], after] = 9
    prompt = target_words.tokenize("the sea", add_special=False, parse_special=False)
    want, _ = write(TableMemory(table), NoDrafter(), params, Coupled(5), prompt)
    drafter = translated(TableMemory(draft_table), target_words, draft_words, params)
    got, rounds = write(TableMemory(table), drafter, params, Coupled(5), prompt)
    assert got == want
    assert sum(r.drafted for r in rounds) > 0


def test_what_names_the_targets_tokens_or_hides_the_best_is_not_for_the_draft() -> None:
    logits = np.array([2.0, 1.0, 0.0, -1.0], dtype=np.float32)
    wanted = SamplingParams(temperature=0.5, top_k=3, top_p=1.0, min_p=0.0)
    stranger = replace(wanted, logit_bias=((0, -100.0),), xtc_probability=1.0, xtc_threshold=0.1)
    got = draft_sampler(stranger, np.array([1])).distribution(logits, [])
    assert [got.probability(token) for token in range(4)] == pytest.approx([0.9796, 0.0, 0.0179, 0.0024], abs=1e-3)


SMALL_TARGET = WordVocabulary("a", "b", "c", "ab", "bc")
SMALL_DRAFT = WordVocabulary("a", "b", "c", "ca", "bb")
START, LENGTH, ROUNDS = 0, 4, 20_000
RULES = {"rejection": Rejection, "coupled": lambda rng: Coupled(int(rng.integers(2**32)))}


@pytest.mark.parametrize("name", RULES)
def test_a_translated_draft_leaves_the_targets_distribution(name: str) -> None:
    table, rng = random_table(SMALL_TARGET.n_tokens, seed=1, spread=1.2), np.random.default_rng(11)
    drafter = translated(TableMemory(random_table(5, seed=4)), SMALL_TARGET, SMALL_DRAFT, OPEN)
    target, answers, drafted_rounds, accepted = TableMemory(table), Counter[tuple[int, ...]](), 0, 0
    while drafted_rounds < ROUNDS:
        got, rounds = write(target, drafter, OPEN, RULES[name](rng), [START], LENGTH)
        answers[tuple(got)] += 1
        drafted_rounds += sum(r.drafted > 0 for r in rounds)
        accepted += sum(r.accepted for r in rounds)
    assert accepted > ROUNDS / 20
    assert p_value(answers, table) > 0.001


def p_value(answers: Counter[tuple[int, ...]], table: np.ndarray) -> float:
    """Chi-square against every answer's probability under the target alone; those expected below 5 times pooled."""
    weights = np.exp(table.astype(np.float64))
    probs = weights / weights.sum(axis=1, keepdims=True)
    n, cells, rare = sum(answers.values()), [], np.zeros(2)
    for answer in itertools.product(range(len(table)), repeat=LENGTH):
        wanted = n * np.prod([probs[a, b] for a, b in itertools.pairwise((START, *answer))])
        if wanted >= 5:
            cells.append((answers[answer], wanted))
        else:
            rare += (answers[answer], wanted)
    observed, expected = np.array([*cells, rare]).T
    assert len(cells) > 100
    return float(stats.chisquare(observed, expected).pvalue)


def test_a_wrong_distribution_is_noticed() -> None:
    table = random_table(SMALL_TARGET.n_tokens, seed=1, spread=1.2)
    other = table + random_table(SMALL_TARGET.n_tokens, seed=2, spread=0.2)
    answers: Counter[tuple[int, ...]] = Counter()
    for seed in range(4_000):
        answers[tuple(write(TableMemory(other), NoDrafter(), OPEN, Coupled(seed), [START], LENGTH)[0])] += 1
    assert p_value(answers, table) < 1e-6


# -- real models --------------------------------------------------------------------------------------------------


class Opened:
    def __init__(self, library: Library, path: Path) -> None:
        self.model = Model(library, path, gpu_layers=0)
        self.context = Context(self.model, size=512, threads=1, cancel=CancelFlag())

    def close(self) -> None:
        self.context.close()
        self.model.close()


@pytest.fixture(scope="module")
def target(library: Library, models: Models) -> Iterator[Opened]:
    opened = Opened(library, models.path("smol-q8"))
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("draft_name", ["smol-q4", "tiny-small", "tiny-other"])
def test_real_models_write_the_tokens_of_plain_decoding(
    library: Library, models: Models, target: Opened, draft_name: str
) -> None:
    draft = Opened(library, models.path(draft_name))
    vocabulary = target.model.vocabulary
    prompts = PromptBuilder(vocabulary, target.model.chat_template, "llama", context=512)
    drafted_tokens = accepted = 0
    try:
        for question in ("Count from one to twenty in words.", "Why is the sky blue 🌤️? Answer in German."):
            prompt = prompts.build([Message.of(Role.user, question)], max_tokens=48).tokens
            answers = []
            for drafter in (
                NoDrafter(),
                TranslatedDrafter(
                    draft.context,
                    draft_sampler(GREEDY),
                    target_vocabulary=vocabulary,
                    draft_vocabulary=draft.model.vocabulary,
                ),
            ):
                answer = Answer(TextStream(vocabulary.piece), vocabulary.is_end, 48)
                for r in generate(
                    target.context,
                    drafter,
                    prompt,
                    answer,
                    sampler=Sampler(GREEDY),
                    rule=Rejection(np.random.default_rng(1)),
                    pacing=FixedPacing(3),
                ):
                    drafted_tokens += r.drafted
                    accepted += r.accepted
                answers.append([token.id for token in answer.tokens])
                assert drafter.paused is None
            assert answers[0] == answers[1]
    finally:
        draft.close()
    assert drafted_tokens > 0
    if draft_name == "smol-q4":
        # The same vocabulary, translated all the same: its text comes back as the tokens it was.
        assert accepted > drafted_tokens / 3
