"""A real pair gives the target's own tokens, with any drafter, any draft length, and none.

At temperature 0 always; above it when draws are coupled, where the seed alone decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from app.chat import Message, ModelPair, Role
from app.engine import Engine, GenerationRequest, LoadOptions, SamplingParams, SpeculationParams
from app.engine.protocol import RoundFinished, VerifyRule
from app.engine.stats import SpeculationStats
from tests.support.models import Models

pytestmark = pytest.mark.slow

TOKENS = 128
COUPLED_TOKENS = 32  # there are many more answers to compare
SEEDS = (1, 2, 3)
PROMPTS = (
    "Tell a long story about a lighthouse keeper.",
    "Write a Python class for a bank account with deposit, withdraw, transfer and a history, with type hints.",
    "Count from one to one hundred in words, separated by commas.",
    "Write a letter to my landlord about the broken heating, in German.",
    "List ten facts about the Roman empire as a Markdown table with three columns: number, fact, century.",
    "Explain in detail why the sky is blue 🌤️, and why it is red in the evening.",
    "Explain step by step how to bake sourdough bread, with all times and temperatures.",
    "Write the HTML of a page with a heading, a list of ten fruits and a table.",
)

Answer = list[int]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as running:
        yield running


@pytest.fixture(scope="module")
def plain(engine: Engine, models: Models) -> list[Answer]:
    engine.load(ModelPair(models.path("smol-q8")), LoadOptions(context=1024, threads=1))
    answers = [ask(engine, prompt, "none", 0)[0] for prompt in PROMPTS]
    # The comparison is worth something only if the answers are long and not alike.
    assert [len(answer) for answer in answers] == [TOKENS] * len(PROMPTS)
    assert all(a != b for a, b in itertools.combinations(answers, 2))
    return answers


def ask(engine: Engine, prompt: str, drafter: str, length: int | None) -> tuple[Answer, SpeculationStats]:
    """Greedily; a length of None is paced."""
    return written(engine, prompt, SamplingParams(temperature=0), SpeculationParams(drafter, length), TOKENS)  # type: ignore[arg-type]


def written(
    engine: Engine, prompt: str, sampling: SamplingParams, speculation: SpeculationParams, tokens: int
) -> tuple[Answer, SpeculationStats]:
    stats, ids = SpeculationStats(), []
    request = GenerationRequest((Message.of(Role.user, prompt),), sampling, speculation, max_tokens=tokens)
    for event in engine.generate(request):
        if isinstance(event, RoundFinished):
            stats.observe(event.round)
            ids += [token.id for token in event.round.tokens]
    assert stats.drafted == stats.accepted + stats.rejected + stats.discarded
    return ids, stats


@pytest.mark.parametrize(
    ("draft", "length"),
    [*itertools.product(["smol-q4", "smol-q2", "smol-q8", "lookup"], [1, 3, 8]), ("smol-q4", None)],
)
def test_the_tokens_are_the_same(
    engine: Engine, models: Models, plain: list[Answer], draft: str, length: int | None
) -> None:
    is_model = draft != "lookup"
    pair = ModelPair(models.path("smol-q8"), models.path(draft) if is_model else None)
    loaded = engine.load(pair, LoadOptions(context=1024, threads=1))
    assert not loaded.draft_problem
    accepted = 0
    for prompt, want in zip(PROMPTS, plain, strict=True):
        got, stats = ask(engine, prompt, "model" if is_model else "lookup", length)
        assert got == want, prompt
        accepted += stats.accepted
        if draft == "smol-q8":
            assert stats.rejected == 0, "the target as its own draft is always right"
    assert accepted > 0 or length is None, "pacing may find that no draft pays here"


def coupled(engine: Engine, drafter: str, length: int | None) -> tuple[list[Answer], int]:
    """The answers to all prompts with all seeds, and how many draft tokens stood in them."""
    answers, accepted = [], 0
    speculation = SpeculationParams(drafter, length, VerifyRule.coupled)  # type: ignore[arg-type]
    for prompt, seed in itertools.product(PROMPTS, SEEDS):
        sampling = SamplingParams(temperature=0.8, seed=seed)
        answer, stats = written(engine, prompt, sampling, speculation, COUPLED_TOKENS)
        answers.append(answer)
        accepted += stats.accepted
    return answers, accepted


@pytest.fixture(scope="module")
def coupled_plain(engine: Engine, models: Models) -> list[Answer]:
    engine.load(ModelPair(models.path("smol-q8")), LoadOptions(context=1024, threads=1))
    answers, _ = coupled(engine, "none", None)
    assert all(a != b for a, b in itertools.combinations(answers, 2)), "another seed is another answer"
    return answers


@pytest.mark.parametrize(
    ("draft", "drafter", "length"),
    [
        *((draft, "model", length) for draft in ("smol-q4", "smol-q2") for length in (1, 4, None)),
        *((None, "lookup", length) for length in (1, 4, None)),
        ("smol-q4", "auto", None),
    ],
)
def test_coupled_tokens_are_the_same(
    engine: Engine,
    models: Models,
    coupled_plain: list[Answer],
    draft: str | None,
    drafter: str,
    length: int | None,
) -> None:
    pair = ModelPair(models.path("smol-q8"), models.path(draft) if draft else None)
    engine.load(pair, LoadOptions(context=1024, threads=1))
    answers, accepted = coupled(engine, drafter, length)
    assert answers == coupled_plain
    assert accepted > 0 or length is None, "pacing may find that no draft pays here"
