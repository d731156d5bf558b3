"""The loop on tables: same tokens with any drafter, right counters, right ends, and memories left clean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from app.engine.drafters import Drafter, ModelDrafter, NoDrafter
from app.engine.generate import Answer, generate
from app.engine.lookup import LookupDrafter
from app.engine.pacing import FixedPacing, Pace
from app.engine.protocol import SamplingParams
from app.engine.rounds import DrafterKind, Round, StopReason, TokenSource
from app.engine.sampling import Distribution, Sampler
from app.engine.verify import Draft, Rejection
from app.errors import SlipstreamError
from tests.support.tables import PlainText, TableMemory, random_table

GREEDY = SamplingParams(temperature=0)
N_VOCAB = 40
TARGET = random_table(N_VOCAB, seed=1)
NO_END = N_VOCAB + 1


class Scripted:
    """Proposes what it is told to, round by round, as certain."""

    kind = DrafterKind.model

    def __init__(self, *drafts: Sequence[int]) -> None:
        self.paused: str | None = None
        self._drafts = list(drafts)
        self.asked: list[int] = []
        self.committed: list[tuple[list[int], int]] = []

    def begin(self, tokens: Sequence[int]) -> None: ...

    def draft(self, pace: Pace) -> Draft:
        self.asked.append(pace.limit)
        tokens = list(self._drafts.pop(0)) if self._drafts else []
        return Draft(self.kind, tokens, [Distribution.certain(t) for t in tokens])

    def commit(self, tokens: Sequence[int], accepted: int) -> None:
        if tokens:
            self.committed.append((list(tokens), accepted))


class RandomDrafter(Scripted):
    """Legal ids without any sense."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = np.random.default_rng(2)

    def draft(self, pace: Pace) -> Draft:
        tokens = self._rng.integers(0, N_VOCAB, pace.limit).tolist()
        return Draft(self.kind, tokens, [Distribution.certain(t) for t in tokens])


@dataclass
class Written:
    ids: list[int]
    rounds: list[Round]
    reason: StopReason | None
    target: TableMemory


def write(
    drafter: Drafter,
    *,
    prompt: Sequence[int] = (1, 2, 3),
    length: int = 3,
    max_tokens: int = 60,
    end: int = NO_END,
    params: SamplingParams = GREEDY,
    target: TableMemory | None = None,
    table: np.ndarray = TARGET,
) -> Written:
    target = target or TableMemory(table)
    answer = Answer(PlainText(), lambda token: token == end, max_tokens)
    rounds = list(
        generate(
            target,
            drafter,
            prompt,
            answer,
            sampler=Sampler(params),
            rule=Rejection(np.random.default_rng(0)),
            pacing=FixedPacing(length),
        )
    )
    check_counters(rounds, answer)
    assert target.tokens == [*prompt, *(t.id for t in answer.tokens)][: len(target.tokens)]
    return Written([t.id for t in answer.tokens], rounds, answer.stop_reason, target)


def check_counters(rounds: Sequence[Round], answer: Answer) -> None:
    """The invariants of DESIGN, section 2, on every round."""
    for i, r in enumerate(rounds):
        assert r.number == i
        assert r.drafted == r.accepted + r.rejected + r.discarded
        assert len(r.rejected_texts) == r.rejected
        sources = [t.source for t in r.tokens]
        assert sources.count(TokenSource.draft) == r.accepted
        assert sources[: r.accepted] == [TokenSource.draft] * r.accepted
        if r.drafted == 0:
            assert sources == [TokenSource.plain]
        elif len(sources) > r.accepted:
            assert sources[-1] is (TokenSource.recovered if r.rejected else TokenSource.bonus)
        assert min(r.times.draft, r.times.verify, r.times.sample) >= 0
    assert [t for r in rounds for t in r.tokens] == answer.tokens


def model_drafter(table: np.ndarray, params: SamplingParams = GREEDY, **memory: object) -> ModelDrafter:
    return ModelDrafter(
        TableMemory(table, **memory),  # type: ignore[arg-type]
        Sampler(params),
        Rejection(np.random.default_rng(9)),
        vocabulary_size=N_VOCAB,
    )


DRAFTERS = {
    "itself": lambda: model_drafter(TARGET),
    "near": lambda: model_drafter(TARGET + random_table(N_VOCAB, 3, 0.7)),
    "unrelated": lambda: model_drafter(random_table(N_VOCAB, 4)),
    "lookup": LookupDrafter,
    "random": RandomDrafter,
}


@pytest.mark.parametrize("length", [1, 3, 8, 16])
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy_answers_do_not_depend_on_the_drafter(name: str, length: int, penalty: float) -> None:
    params = SamplingParams(temperature=0, repeat_penalty=penalty, repeat_last_n=8)
    plain = write(NoDrafter(), params=params)
    drafted = write(DRAFTERS[name](), length=length, params=params)
    assert drafted.ids == plain.ids
    assert drafted.reason is plain.reason is StopReason.max_tokens


def test_the_target_as_its_own_draft_is_always_accepted() -> None:
    written = write(model_drafter(TARGET))
    assert sum(r.rejected for r in written.rounds) == 0
    assert sum(r.accepted for r in written.rounds) > 40


def test_sources_of_a_known_protocol() -> None:
    """One line of expectation for the whole protocol."""
    a, b, c, d, e, f, g = write(NoDrafter(), max_tokens=7).ids
    written = write(Scripted([b, c], [e, f + 1]), max_tokens=7, length=2)
    sources = ["".join(t.source.value[0] for t in r.tokens) for r in written.rounds]
    assert sources == ["p", "ddb", "dr", "p"]
    assert written.ids == [a, b, c, d, e, f, g]


def test_the_first_round_has_no_draft_and_the_draft_reads_nothing_before_it() -> None:
    drafter = model_drafter(TARGET)
    memory = drafter._context
    target = TableMemory(TARGET)
    answer = Answer(PlainText(), lambda token: False, 10)
    rounds = generate(
        target,
        drafter,
        [1, 2, 3],
        answer,
        sampler=Sampler(GREEDY),
        rule=Rejection(np.random.default_rng(0)),
        pacing=FixedPacing(3),
    )
    assert next(rounds).drafted == 0
    assert memory.evaluated == 0
    assert next(rounds).drafted == 3


def test_the_draft_evaluates_every_token_once() -> None:
    drafter = model_drafter(TARGET)
    written = write(drafter, max_tokens=41)
    # Everything accepted: each token of prompt and answer passes through the draft at most once.
    assert drafter._context.evaluated <= 3 + len(written.ids)


@pytest.mark.parametrize("tail", [[], [7], [7, 8, 9]])
def test_the_end_inside_an_accepted_draft_ends_the_answer(tail: list[int]) -> None:
    a, b, c = write(NoDrafter(), max_tokens=3).ids
    drafter = Scripted([b, c, *tail])
    written = write(drafter, end=c, length=8)
    assert written.ids == [a, b, c]
    assert written.reason is StopReason.end_of_turn
    last = written.rounds[-1]
    assert (last.accepted, last.discarded, last.rejected) == (2, len(tail), 0)
    assert written.target.tokens == [1, 2, 3, a, b]  # the last token stays pending


def test_the_end_comes_before_the_limit() -> None:
    _, b = write(NoDrafter(), max_tokens=2).ids
    assert write(NoDrafter(), max_tokens=2, end=b).reason is StopReason.end_of_turn
    assert write(Scripted([b]), max_tokens=2, end=b, length=8).reason is StopReason.end_of_turn


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5, 9])
def test_no_token_beyond_the_limit(max_tokens: int) -> None:
    written = write(model_drafter(TARGET), max_tokens=max_tokens, length=8)
    assert len(written.ids) == max_tokens
    assert written.reason is StopReason.max_tokens


@pytest.mark.parametrize("room", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_full_context_ends_the_answer_at_the_same_token(room: int, name: str) -> None:
    """The last token of an answer needs no place in the context, so one more than the room is written."""
    prompt = [i % N_VOCAB for i in range(50 - room)]
    plain = write(NoDrafter(), prompt=prompt, max_tokens=1000, target=TableMemory(TARGET, size=50))
    drafted = write(DRAFTERS[name](), prompt=prompt, max_tokens=1000, length=8, target=TableMemory(TARGET, size=50))
    assert plain.reason is drafted.reason is StopReason.context_full
    assert len(plain.ids) == room + 1
    assert drafted.ids == plain.ids


def test_a_full_draft_context_pauses_drafting_and_the_answer_goes_on() -> None:
    drafter = model_drafter(TARGET, size=20)
    written = write(drafter)
    assert written.ids == write(NoDrafter()).ids
    assert drafter.paused and "full" in drafter.paused
    assert written.rounds[1].drafted == 3
    assert written.rounds[-1].drafted == 0


def test_a_failing_draft_pauses_drafting_and_the_answer_goes_on() -> None:
    drafter = model_drafter(TARGET)

    def fail() -> None:
        if len(drafter._context.tokens) > 20:
            raise SlipstreamError("the draft broke.")

    drafter._context.decode_hook = fail
    written = write(drafter)
    assert written.ids == write(NoDrafter()).ids
    assert drafter.paused and "broke" in drafter.paused


def test_a_token_that_the_draft_lacks_is_never_fed_to_it() -> None:
    small = TARGET[: N_VOCAB - 10, : N_VOCAB - 10]
    drafter = model_drafter(small)
    written = write(drafter, max_tokens=200)
    assert any(t >= N_VOCAB - 10 for t in written.ids), "the case must occur"
    assert drafter.paused and "lacks" in drafter.paused
    assert written.ids == write(NoDrafter(), max_tokens=200).ids


def test_a_larger_draft_vocabulary_proposes_nothing_beyond_the_targets() -> None:
    larger = np.full((N_VOCAB + 8, N_VOCAB + 8), -5.0, dtype=np.float32)
    larger[:, N_VOCAB:] = 50.0  # it would love to
    larger[:N_VOCAB, :N_VOCAB] = TARGET
    written = write(model_drafter(larger))
    assert written.ids == write(NoDrafter()).ids
    assert sum(r.accepted for r in written.rounds) > 0


@pytest.mark.parametrize("who", ["target", "draft"])
def test_a_memory_that_cannot_be_rewound_still_gives_the_same_answer(who: str) -> None:
    target = TableMemory(TARGET, can_rewind=who != "target")
    drafter = model_drafter(TARGET + random_table(N_VOCAB, 3, 0.7), can_rewind=who != "draft")
    assert write(drafter, target=target).ids == write(NoDrafter()).ids


def test_the_memory_of_the_last_turn_is_reused() -> None:
    target = TableMemory(TARGET)
    first = write(model_drafter(TARGET), prompt=[1, 2, 3], max_tokens=10, target=target)
    before = target.evaluated
    prompt = [1, 2, 3, *first.ids, 4, 5]
    second = write(NoDrafter(), prompt=prompt, max_tokens=1, target=target)
    assert target.evaluated - before == 3  # the pending last token and the two new ones
    assert second.ids == write(NoDrafter(), prompt=prompt, max_tokens=1).ids


def test_the_same_prompt_again_evaluates_one_token() -> None:
    target = TableMemory(TARGET)
    first = write(NoDrafter(), prompt=[1, 2, 3], max_tokens=4, target=target)
    before = target.evaluated
    again = write(NoDrafter(), prompt=[1, 2, 3], max_tokens=4, target=target)
    assert again.ids == first.ids
    assert target.evaluated - before == 4


def test_a_long_prompt_goes_in_batches() -> None:
    prompt = [i % N_VOCAB for i in range(300)]
    heard: list[int] = []
    target = TableMemory(TARGET, capacity=64)
    answer = Answer(PlainText(), lambda token: False, 5)
    list(
        generate(
            target,
            NoDrafter(),
            prompt,
            answer,
            sampler=Sampler(GREEDY),
            rule=Rejection(np.random.default_rng(0)),
            pacing=FixedPacing(3),
            on_prompt=heard.append,
        )
    )
    assert heard == [0, 64, 128, 192, 256, 299]


def test_cancelling_between_rounds_keeps_what_is_written() -> None:
    stop = [False]
    target, drafter = TableMemory(TARGET), model_drafter(TARGET)
    answer = Answer(PlainText(), lambda token: False, 1000)
    rounds = generate(
        target,
        drafter,
        [1, 2],
        answer,
        sampler=Sampler(GREEDY),
        rule=Rejection(np.random.default_rng(0)),
        pacing=FixedPacing(3),
        is_cancelled=lambda: stop[0],
    )
    for _ in range(4):
        next(rounds)
    stop[0] = True
    assert list(rounds) == []
    assert answer.stop_reason is StopReason.cancelled
    text = [1, 2, *(t.id for t in answer.tokens)]
    assert target.tokens == text[:-1]
    assert drafter._context.tokens == text[: len(drafter._context.tokens)]


def test_a_target_that_fails_leaves_clean_memories() -> None:
    target, drafter = TableMemory(TARGET), model_drafter(TARGET)
    answer = Answer(PlainText(), lambda token: False, 1000)
    rounds = generate(
        target,
        drafter,
        [1, 2],
        answer,
        sampler=Sampler(GREEDY),
        rule=Rejection(np.random.default_rng(0)),
        pacing=FixedPacing(3),
    )
    for _ in range(3):
        next(rounds)

    def fail() -> None:
        raise SlipstreamError("broken.")

    target.decode_hook = fail
    with pytest.raises(SlipstreamError, match="broken"):
        next(rounds)
    text = [1, 2, *(t.id for t in answer.tokens)]
    assert target.tokens == text[: len(target.tokens)]
    assert drafter._context.tokens == text[: len(drafter._context.tokens)]


def test_the_same_seed_gives_the_same_answer() -> None:
    params = SamplingParams(temperature=1.0)
    assert (
        write(model_drafter(TARGET, params), params=params).ids
        == write(model_drafter(TARGET, params), params=params).ids
    )
