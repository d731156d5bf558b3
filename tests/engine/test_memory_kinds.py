"""Every kind of memory gives the answer that it gives without a draft, whatever is rejected, cancelled or reused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from app.engine import rewinding
from app.engine.context import Context
from app.engine.drafters import Drafter, ModelDrafter, NoDrafter
from app.engine.generate import Answer, generate
from app.engine.llama import CancelFlag, L, Library
from app.engine.loaded import LoadedPair
from app.engine.lookup import LookupDrafter
from app.engine.model import Model
from app.engine.pacing import FixedPacing, Pace
from app.engine.protocol import MAX_DRAFT_LENGTH, LoadOptions, LoadPair, SamplingParams
from app.engine.rewinding import SNAPSHOTS, Checkpoints, Removal, Rewinding, Snapshots
from app.engine.rounds import DrafterKind, Round, StopReason
from app.engine.sampling import Distribution, Sampler
from app.engine.verify import Coupled, Draft, Rejection, Rule
from app.errors import OutOfMemoryError
from tests.support.gguf_files import SLIDING_WINDOW
from tests.support.models import Models
from tests.support.tables import PlainText, TableMemory, random_table

GREEDY = SamplingParams(temperature=0)
WARM = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.0)
PROMPT = [10 + i * 7 % 400 for i in range(60)]
ANSWER = 300  # tokens; several windows long


@dataclass(frozen=True)
class Kind:
    model: str
    rewinding: type[Rewinding]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def is_exact_to_the_bit(self) -> bool:
        """In a ring of cells the order of a sum depends on what was rewound before."""
        return self.settings.get("whole_windows", True)


KINDS = {
    "attention": Kind("tiny-small", Removal),
    "whole windows": Kind("tiny-swa", Removal),
    "windows": Kind("tiny-swa", Removal, {"whole_windows": False}),
    "recurrent": Kind("tiny-mamba", Checkpoints),
    "hybrid": Kind("tiny-lfm2", Checkpoints),
    "hybrid with windows": Kind("tiny-lfm2-swa", Checkpoints, {"whole_windows": False}),
    "hybrid with snapshots": Kind("tiny-lfm2", Snapshots, {"snapshots": SNAPSHOTS}),
}
WITH_COPIES = [name for name, kind in KINDS.items() if issubclass(kind.rewinding, Checkpoints)]


class CountingContext(Context):
    """Notes the size of every batch, can cancel inside one, and counts how often everything was lost.

    Its batches are short: the flash attention of a long one sums in another order, so that a prompt read at once and
    the same text written token by token differ in the last bits, on any kind of memory and with no draft at all.
    """

    capacity = 32

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.batches: list[int] = []
        self.cancel_in: int | None = None  # batches from now
        super().__init__(*arguments, **settings)
        self.batches.clear()
        self.clears = 0

    def decode(self, tokens: Sequence[int], outputs: int) -> None:
        self.batches.append(len(tokens))
        if self.cancel_in is not None:
            self.cancel_in -= 1
            if self.cancel_in == 0:
                self._cancel.set()
        super().decode(tokens, outputs)

    def _hold(self, length: int) -> None:
        self.clears = getattr(self, "clears", 0) + (length == 0)
        super()._hold(length)


Open = Callable[..., CountingContext]


@pytest.fixture
def open_context(models: Models) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:
        library = Library()

        def opened(kind: Kind, seed: int = 0, size: int = 2048) -> CountingContext:
            path = models.path(f"{kind.model}-{seed}" if seed else kind.model)
            model = stack.enter_context(contextlib.closing(Model(library, path)))
            made = CountingContext(model, size=size, threads=1, cancel=CancelFlag(), **kind.settings)
            return stack.enter_context(contextlib.closing(made))

        yield opened


@dataclass
class Written:
    ids: list[int]
    rounds: list[Round]
    stop_reason: StopReason | None

    @property
    def accepted(self) -> int:
        return sum(r.accepted for r in self.rounds)

    @property
    def rejected(self) -> int:
        return sum(r.rejected for r in self.rounds)


def write(
    target: Any,
    drafter: Drafter,
    prompt: Sequence[int] = PROMPT,
    length: int = ANSWER,
    params: SamplingParams = GREEDY,
    rule: Rule | None = None,
) -> Written:
    answer = Answer(PlainText(), lambda token: False, length)  # type: ignore[arg-type]
    rule = rule or Rejection(np.random.default_rng(3))
    pacing = FixedPacing(MAX_DRAFT_LENGTH)
    rounds = list(
        generate(target, drafter, prompt, answer, sampler=Sampler(params), rule=rule, pacing=pacing)  # type: ignore[arg-type]
    )
    return Written([token.id for token in answer.tokens], rounds, answer.stop_reason)


class NoisyDrafter:
    """Knows the answer and proposes it with mistakes, in drafts of 0 to 8 tokens."""

    kind = DrafterKind.lookup
    paused: str | None = None

    def __init__(self, answer: Sequence[int], seed: int = 5) -> None:
        self._answer = answer
        self._written = 0
        self._rng = np.random.default_rng(seed)

    def begin(self, tokens: Sequence[int]) -> None:
        self._written = 0

    def draft(self, pace: Pace) -> Draft:
        draft = Draft(self.kind)
        for right in self._answer[self._written :][: min(pace.limit, int(self._rng.integers(0, 9)))]:
            token = right if self._rng.random() < 0.8 else int(self._rng.integers(10, 500))
            draft.tokens.append(token)
            draft.probs.append(Distribution.certain(token))
            draft.confidences.append(1.0)
        return draft

    def commit(self, tokens: Sequence[int], accepted: int) -> None:
        self._written += len(tokens)


def model_drafter(context: Context, params: SamplingParams = GREEDY, rule: Rule | None = None) -> ModelDrafter:
    rule = rule or Rejection(np.random.default_rng(4))
    return ModelDrafter(context, Sampler(params), rule, vocabulary_size=512)


def logits_behind(context: Context, tokens: Sequence[int]) -> np.ndarray:
    context.rewind(min(len(context.tokens), len(tokens) - 1))
    rest = tokens[len(context.tokens) :]
    for start in range(0, len(rest), context.capacity):
        part = rest[start : start + context.capacity]
        context.decode(part, outputs=int(start + len(part) == len(rest)))
    return context.logits(0).copy()


@pytest.mark.parametrize("name", KINDS)
def test_the_kind_is_found_out(open_context: Open, name: str) -> None:
    context = open_context(KINDS[name])
    assert type(context._rewinding) is KINDS[name].rewinding
    assert context.can_rewind
    assert context.tokens == []


@pytest.mark.parametrize("name", KINDS)
def test_a_target_of_any_kind_answers_as_without_a_draft(open_context: Open, name: str) -> None:
    kind = KINDS[name]
    length = 900  # the ring of cells behind a window turns once
    plain = write(open_context(kind), NoDrafter(), length=length)
    assert len(set(plain.ids)) > 30, "a repetition would prove little"
    target = open_context(kind)
    written = write(target, NoisyDrafter(plain.ids), length=length)
    assert written.ids == plain.ids
    assert written.accepted > 50
    assert written.rejected > 50
    assert target.tokens == [*PROMPT, *written.ids][: len(target.tokens)]
    # No rejection cost the whole memory: at worst a few kept tokens are evaluated a second time.
    assert target.clears == 0
    assert max(target.batches[2:]) <= MAX_DRAFT_LENGTH + 1 + 8
    ends = [*PROMPT, *written.ids]
    warm, cold = logits_behind(target, ends), logits_behind(open_context(kind), ends)
    if kind.is_exact_to_the_bit:
        assert np.array_equal(warm, cold)
    else:
        assert np.allclose(warm, cold, atol=0.2)


@pytest.mark.parametrize("name", KINDS)
def test_the_seed_alone_decides_with_coupled_draws(open_context: Open, name: str) -> None:
    kind = KINDS[name]
    plain = write(open_context(kind), NoDrafter(), params=WARM, rule=Coupled(11), length=120)
    target = open_context(kind)
    written = write(target, NoisyDrafter(plain.ids), params=WARM, rule=Coupled(11), length=120)
    assert written.ids == plain.ids
    assert written.accepted > 10 and written.rejected > 10
    assert target.clears == 0


@pytest.mark.parametrize("draft", KINDS)
@pytest.mark.parametrize("target", ["attention", "recurrent", "hybrid with snapshots"])
def test_a_draft_of_any_kind_leaves_the_answer_alone(open_context: Open, target: str, draft: str) -> None:
    plain = write(open_context(KINDS[target]), NoDrafter(), length=150)
    context = open_context(replace_settings(KINDS[draft]), seed=2)
    written = write(open_context(KINDS[target]), model_drafter(context), length=150)
    assert written.ids == plain.ids
    assert written.rejected > 50
    assert context.clears == 0
    assert sum(context.batches) < 4 * len(written.rounds) * MAX_DRAFT_LENGTH


def replace_settings(kind: Kind) -> Kind:
    """As a draft is opened: token by token, snapshots of one batch are of no use."""
    return Kind(kind.model, kind.rewinding, {k: v for k, v in kind.settings.items() if k != "snapshots"})


@pytest.mark.parametrize("name", KINDS)
def test_a_related_draft_of_the_same_kind_is_accepted_and_rejected(open_context: Open, name: str) -> None:
    kind = KINDS[name]
    plain = write(open_context(kind), NoDrafter())
    draft = open_context(replace_settings(kind), seed=2)
    itself = open_context(replace_settings(kind))
    related = write(open_context(kind), model_drafter(draft))
    same = write(open_context(kind), model_drafter(itself))
    assert related.ids == same.ids == plain.ids
    assert related.accepted > 0 and related.rejected > 0
    assert same.accepted > ANSWER // 2
    assert draft.clears == itself.clears == 0


@pytest.mark.parametrize("name", KINDS)
def test_lookup_serves_every_kind(open_context: Open, name: str) -> None:
    prompt = [*PROMPT, *write(open_context(KINDS[name]), NoDrafter()).ids, *PROMPT]
    plain = write(open_context(KINDS[name]), NoDrafter(), prompt)
    written = write(open_context(KINDS[name]), LookupDrafter(), prompt)
    assert written.ids == plain.ids
    assert sum(r.drafted for r in written.rounds) > 0


@pytest.mark.parametrize("name", KINDS)
def test_the_next_turn_goes_on_as_in_a_cold_context(open_context: Open, name: str) -> None:
    kind = KINDS[name]
    plain = write(open_context(kind), NoDrafter())
    target = open_context(kind)
    first = write(target, NoisyDrafter(plain.ids))
    turns = {
        "next": [*PROMPT, *first.ids, 77, 78, 79],
        "shortened answer": [*PROMPT, *first.ids[:100], 77, 78, 79],
        "regenerated": PROMPT,
        "edited": [*PROMPT[:30], 99, *PROMPT[31:]],
        "unrelated": [5, 6, 7, 8, 9, 10, 11],
    }
    for turn, prompt in turns.items():
        cold = write(open_context(kind), NoDrafter(), prompt, length=80)
        warm = write(target, NoisyDrafter(cold.ids), prompt, length=80)
        assert warm.ids == cold.ids, turn
        assert warm.rejected > 0, turn


@pytest.mark.parametrize("name", KINDS)
def test_regenerating_does_not_read_the_prompt_again(open_context: Open, name: str) -> None:
    kind = KINDS[name]
    target = open_context(kind)
    prompt = [*PROMPT, *range(100, 400)]
    first = write(target, NoDrafter(), prompt, length=50)
    target.batches.clear()
    again = write(target, NoDrafter(), prompt, length=50)
    assert again.ids == first.ids
    assert target.clears == 0
    assert sum(target.batches) == 50  # a token a round


@pytest.mark.parametrize("name", KINDS)
def test_what_follows_the_prompt_alone_is_read_again_where_the_answer_changed(open_context: Open, name: str) -> None:
    """A template that drops the reasoning from older answers leaves the prompt as the common beginning."""
    target = open_context(KINDS[name])
    first = write(target, NoDrafter(), [*PROMPT, *range(100, 400)], length=60)
    target.batches.clear()
    write(target, NoDrafter(), [*PROMPT, *range(100, 400), *first.ids[30:], 77], length=1)
    assert sum(target.batches) <= 33
    assert target.clears == 0


@pytest.mark.parametrize("batch", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("name", KINDS)
def test_cancelling_inside_a_batch_leaves_a_memory_that_goes_on(open_context: Open, name: str, batch: int) -> None:
    kind = KINDS[name]
    plain = write(open_context(kind), NoDrafter(), length=100)
    target = open_context(kind)
    target.cancel_in = batch
    stopped = write(target, NoisyDrafter(plain.ids), length=100)
    assert stopped.stop_reason is StopReason.cancelled
    assert stopped.ids == plain.ids[: len(stopped.ids)]
    assert len(stopped.ids) < 100
    assert target.tokens == [*PROMPT, *stopped.ids][: len(target.tokens)]
    target._cancel.clear()
    assert write(target, NoisyDrafter(plain.ids), length=100).ids == plain.ids


@pytest.mark.parametrize("name", WITH_COPIES)
def test_cancelling_a_draft_leaves_a_memory_that_goes_on(open_context: Open, name: str) -> None:
    kind = replace_settings(KINDS[name])
    target, draft = open_context(KINDS["attention"]), open_context(kind, seed=2)
    plain = write(open_context(KINDS["attention"]), NoDrafter(), length=60)
    drafter = model_drafter(draft)
    draft.cancel_in = 9
    assert write(target, drafter, length=60).stop_reason is StopReason.cancelled
    draft._cancel.clear()
    assert write(target, drafter, length=60).ids == plain.ids
    text = [*PROMPT, *plain.ids]
    assert np.array_equal(logits_behind(draft, text), logits_behind(open_context(kind, seed=2), text))


@pytest.mark.parametrize("fails", ["llama_state_seq_set_data_ext", "llama_state_seq_get_data_ext"])
@pytest.mark.parametrize("name", WITH_COPIES)
def test_a_copy_that_fails_costs_time_and_not_the_answer(
    open_context: Open, monkeypatch: pytest.MonkeyPatch, name: str, fails: str
) -> None:
    plain = write(open_context(KINDS[name]), NoDrafter(), length=80)
    target = open_context(KINDS[name])
    monkeypatch.setattr(L, fails, lambda *arguments: 0)
    assert write(target, NoisyDrafter(plain.ids), length=80).ids == plain.ids
    assert target.clears > 0


def test_a_removal_that_fails_costs_time_and_not_the_answer(
    open_context: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write(open_context(KINDS["attention"]), NoDrafter(), length=80)
    target = open_context(KINDS["attention"])
    monkeypatch.setattr(L, "llama_memory_seq_rm", lambda *arguments: False)
    assert write(target, NoisyDrafter(plain.ids), length=80).ids == plain.ids
    assert target.clears > 10
    assert sum(target.batches) > 10 * len(PROMPT)  # everything was evaluated again


def test_a_memory_that_nothing_helps_is_called_so(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(L, "llama_state_seq_set_data_ext", lambda *arguments: 0)
    with (
        contextlib.closing(Model(Library(), models.path("tiny-mamba"))) as model,
        contextlib.closing(Context(model, size=512, threads=1, cancel=CancelFlag())) as context,
    ):
        assert not context.can_rewind
        context.decode([1, 2, 3], outputs=0)
        context.rewind(2)
        assert context.tokens == []


TEXT = [10 + i * 11 % 450 for i in range(60)]


def is_as_cold(open_context: Open, context: CountingContext, name: str) -> bool:
    """Whether what the memory holds is what a new one makes of the same tokens."""
    text = [*context.tokens, 5, 6, 7]
    return np.array_equal(logits_behind(context, text), logits_behind(open_context(KINDS[name]), text))


def test_snapshots_are_not_used_beyond_the_last_batch(open_context: Open) -> None:
    """llama.cpp would put back a snapshot that an older batch left there."""
    name = "hybrid with snapshots"
    context = open_context(KINDS[name])
    logits_behind(context, TEXT[:20])
    context.decode(TEXT[20:22], outputs=1)
    context.rewind(18)
    assert is_as_cold(open_context, context, name)


def test_snapshots_are_used_once(open_context: Open) -> None:
    name = "hybrid with snapshots"
    context = open_context(KINDS[name])
    logits_behind(context, TEXT[:20])
    context.keep()
    context.decode(TEXT[20:28], outputs=1)
    context.rewind(22)
    assert len(context.tokens) == 20  # six tokens are too many for snapshots: back to what was kept
    context.rewind(18)
    assert is_as_cold(open_context, context, name)


@pytest.mark.parametrize("name", WITH_COPIES)
def test_a_copy_of_another_text_is_never_put_back(open_context: Open, name: str) -> None:
    context = open_context(KINDS[name])
    logits_behind(context, TEXT[:20])
    context.keep()
    context.mark(8)
    context.clear()
    logits_behind(context, TEXT[30:55])
    context.rewind(20)
    assert context.tokens in ([], TEXT[30:50])
    assert is_as_cold(open_context, context, name)


@pytest.mark.parametrize("name", KINDS)
def test_rewinding_anywhere_at_any_time(open_context: Open, name: str) -> None:
    """A random walk: whatever is marked, kept, evaluated and dropped, the memory is that of its tokens."""
    context, rng = open_context(KINDS[name]), np.random.default_rng(8)
    for step in range(120):
        n = int(rng.integers(1, 12))
        if rng.random() < 0.5:
            context.mark(n - 1)
        if rng.random() < 0.1:
            context.keep()
        context.decode([int(token) for token in rng.integers(10, 450, n)], outputs=1)
        if rng.random() < 0.6:
            context.rewind(max(0, len(context.tokens) - int(rng.integers(0, 10))))
        if step % 20 == 19:
            assert is_as_cold(open_context, context, name)


def test_going_back_behind_a_window_starts_again(open_context: Open) -> None:
    """llama.cpp would agree and compute from a gap."""
    kind = KINDS["windows"]
    context = open_context(kind)
    text = [10 + i * 11 % 450 for i in range(1500)]

    def error_at(length: int) -> float:
        context.rewind(length)
        assert len(context.tokens) == length, "otherwise nothing was reused"
        cold = logits_behind(open_context(kind), text[: length + 1])
        return float(np.abs(logits_behind(context, text[: length + 1]) - cold).max())

    logits_behind(context, text)
    oldest = L.llama_memory_seq_pos_min(L.llama_get_memory(context.handle), 0)
    assert oldest > SLIDING_WINDOW, "the ring must have turned for the case to occur"
    assert error_at(oldest + SLIDING_WINDOW) < 0.2
    context.rewind(oldest + SLIDING_WINDOW - 1)
    assert context.tokens == []
    assert isinstance(context._rewinding, Removal)
    context._rewinding._window = 0  # believe llama.cpp
    logits_behind(context, text)
    assert error_at(oldest + SLIDING_WINDOW // 2) > 1


def test_whole_windows_go_back_anywhere(open_context: Open) -> None:
    kind = KINDS["whole windows"]
    context = open_context(kind)
    text = [10 + i * 11 % 450 for i in range(1500)]
    logits_behind(context, text)
    context.rewind(100)
    assert len(context.tokens) == 100
    assert np.array_equal(logits_behind(context, text[:101]), logits_behind(open_context(kind), text[:101]))


@pytest.mark.parametrize("name", WITH_COPIES)
def test_no_state_is_copied_where_no_draft_is_made(
    open_context: Open, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target = open_context(KINDS[name])
    copies = []
    copy = rewinding.Checkpoints._copy
    monkeypatch.setattr(rewinding.Checkpoints, "_copy", lambda *a: copies.append(1) or copy(*a))
    write(target, NoDrafter(), length=50)
    assert len(copies) == 1  # behind the prompt


def test_short_drafts_need_no_copy_where_there_are_snapshots(
    open_context: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = KINDS["hybrid with snapshots"]
    plain = write(open_context(kind), NoDrafter(), length=100)
    target = open_context(kind)
    copies = []
    copy = rewinding.Checkpoints._copy
    monkeypatch.setattr(rewinding.Checkpoints, "_copy", lambda *a: copies.append(1) or copy(*a))
    answer = Answer(PlainText(), lambda token: False, 100)  # type: ignore[arg-type]
    sampler, rule = Sampler(GREEDY), Rejection(np.random.default_rng(3))
    short = FixedPacing(SNAPSHOTS)
    drafter = NoisyDrafter(plain.ids)
    rounds = [*generate(target, drafter, PROMPT, answer, sampler=sampler, rule=rule, pacing=short)]
    assert [token.id for token in answer.tokens] == plain.ids
    assert sum(r.rejected for r in rounds) > 10
    assert len(copies) == 1
    assert sum(target.batches) == len(PROMPT) - 1 + sum(r.drafted + 1 for r in rounds)  # nothing twice


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_table_that_needs_marks_is_marked_in_time(role: str) -> None:
    table = random_table(40, seed=1)
    near = table + random_table(40, seed=3, spread=0.7)
    target = TableMemory(table, needs_marks=role == "target")
    draft = TableMemory(near, needs_marks=role == "draft")
    sampler, rule = Sampler(GREEDY), Rejection(np.random.default_rng(4))
    drafter = ModelDrafter(draft, sampler, rule, vocabulary_size=40)
    written = write(target, drafter, prompt=[1, 2, 3], length=200)
    assert written.ids == write(TableMemory(table), NoDrafter(), prompt=[1, 2, 3], length=200).ids
    assert written.accepted > 0 and written.rejected > 0
    assert target.clears == draft.clears == 0
    drafted_rounds = [r for r in written.rounds if r.drafted]
    if role == "target":
        assert len(target.marks) <= len(drafted_rounds) + 1  # one a draft, one behind the prompt


@pytest.mark.parametrize(
    ("target", "draft"), [("tiny-lfm2", "tiny-mamba-2"), ("tiny-mamba", "tiny-lfm2-2"), ("tiny-swa", "tiny-mamba")]
)
def test_a_pair_of_any_kinds_loads_and_drafts(models: Models, target: str, draft: str) -> None:
    pair = LoadedPair(Library(), CancelFlag())
    options = LoadOptions(context=512, threads=1)
    wanted = LoadPair(str(models.path(target)), str(models.path(draft)), options)
    with contextlib.closing(pair):
        pair.load(wanted, lambda part, fraction: None)
        assert pair.draft_problem is None
        assert pair.draft_info() is not None
        assert pair.target.can_rewind


def test_windows_are_kept_whole_while_memory_lasts(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    class TightContext(Context):
        def __init__(self, *arguments: Any, whole_windows: bool = True, **settings: Any) -> None:
            asked.append(whole_windows)
            if whole_windows:
                raise OutOfMemoryError("no")
            super().__init__(*arguments, whole_windows=whole_windows, **settings)

    monkeypatch.setattr("app.engine.loaded.Context", TightContext)
    pair = LoadedPair(Library(), CancelFlag())
    options = LoadOptions(context=512, threads=1)
    with contextlib.closing(pair):
        pair.load(LoadPair(str(models.path("tiny-swa")), None, options), lambda part, fraction: None)
        assert asked == [True, False]
        assert pair.target.can_rewind
        with pytest.raises(OutOfMemoryError):  # without windows there is nothing to give up
            pair.load(LoadPair(str(models.path("tiny-small")), None, options), lambda part, fraction: None)
