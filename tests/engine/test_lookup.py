"""Lookup in the text so far."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine import lookup
from app.engine.lookup import LONGEST_MATCH, MAX_PLACES, RUNS, LookupDrafter, TextIndex
from app.engine.pacing import FixedPacing
from app.engine.rounds import DrafterKind

# Few different tokens, so that runs return.
TEXTS = st.lists(st.integers(0, 4), max_size=80)
LENGTHS = st.integers(1, 12)


def behind(text: Sequence[int]) -> LookupDrafter:
    drafter = LookupDrafter()
    drafter.begin(text)
    return drafter


def proposed(text: Sequence[int], length: int) -> list[int]:
    return behind(text).propose(length).tokens


def said(drafter: LookupDrafter, length: int) -> tuple[list[int], list[float]]:
    draft = drafter.propose(length)
    return draft.tokens, draft.confidences


def evidence(drafter: LookupDrafter) -> tuple[float, float]:
    """How many draft tokens were judged beyond the first guesses, and how many of them were right."""
    records = [record for band in drafter._records for record in band]
    fresh = [record for band in LookupDrafter()._records for record in band]
    return (
        sum(r.seen for r in records) - sum(r.seen for r in fresh),
        sum(r.right for r in records) - sum(r.right for r in fresh),
    )


class Cut:
    """A Pace that lets `length` ready tokens through and remembers what it was asked."""

    needs_confidence = True

    def __init__(self, limit: int, length: int) -> None:
        self.limit = limit
        self.length = length
        self.asked: list[tuple[DrafterKind, list[float]]] = []

    def goes_on(self, kind: DrafterKind, pending: int) -> bool:
        raise AssertionError("a lookup computes nothing step by step")

    def takes(self, kind: DrafterKind, confidence: float) -> bool:
        raise AssertionError("a lookup computes nothing step by step")

    def cut(self, kind: DrafterKind, confidences: Sequence[float], rival: int | None = None) -> int:
        self.asked.append((kind, list(confidences)))
        return min(self.length, len(confidences))


# What is proposed.


def test_what_followed_before_is_proposed() -> None:
    assert proposed([1, 2, 3, 4, 5, 9, 1, 2], 3) == [3, 4, 5]


def test_the_longest_match_decides() -> None:
    # 2 3 was followed by 7 last, but 1 2 3 by 4.
    assert proposed([1, 2, 3, 4, 9, 2, 3, 7, 8, 1, 2, 3], 1) == [4]


def test_a_match_is_as_long_as_the_text_agrees() -> None:
    # Both continuations follow the same 20 tokens; only what stands before them tells them apart.
    quoted = list(range(100, 120))
    assert proposed([1, *quoted, 5, 2, *quoted, 6, 1, *quoted], 1) == [5]
    assert proposed([1, *quoted, 5, 2, *quoted, 6, 2, *quoted], 1) == [6]


def test_the_latest_of_equal_matches_decides() -> None:
    assert proposed([1, 2, 5, 1, 2, 6, 1, 2], 1) == [6]


def test_a_repetition_goes_on_in_its_own_proposal() -> None:
    assert proposed([5, 6, 5, 6, 5, 6], 5) == [5, 6, 5, 6, 5]


def test_nothing_new_is_proposed() -> None:
    assert proposed([1, 2, 3, 4], 3) == []
    assert proposed([1], 3) == []
    assert proposed([], 3) == []
    assert proposed([1, 2, 3, 1, 2], 0) == []


def test_a_draft_is_certain_of_its_tokens() -> None:
    draft = behind([1, 2, 3, 1, 2]).draft(FixedPacing(2).begin(2))
    assert draft.drafter is DrafterKind.lookup
    assert draft.tokens == [3, 1]
    assert [d.probability(t) for d, t in zip(draft.probs, draft.tokens, strict=True)] == [1.0, 1.0]


def test_a_pace_hears_the_confidences_and_cuts_the_draft() -> None:
    drafter = behind([1, 2, 3, 4, 5, 1, 2])
    whole = drafter.propose(6)
    pace = Cut(limit=6, length=2)
    draft = drafter.draft(pace)
    assert pace.asked == [(DrafterKind.lookup, whole.confidences)]
    assert draft.tokens == whole.tokens[:2] == [3, 4]
    assert draft.confidences == whole.confidences[:2]
    assert len(draft.probs) == 2


@given(TEXTS, LENGTHS)
def test_a_proposal_is_whole_and_a_continuation_that_stands_in_the_text(text: list[int], length: int) -> None:
    drafter = behind(text)
    draft = drafter.propose(length)
    if not draft.tokens:
        assert all(text[i : i + 2] != text[-2:] for i in range(len(text) - 2))
        return
    assert len(draft) == len(draft.probs) == len(draft.confidences) == length
    assert all(0 < confidence < 1 for confidence in draft.confidences)
    assert drafter._proposal is not None
    place = drafter._proposal.place
    assert text[place - 2 : place] == text[-2:]
    assert draft.tokens == [*text, *draft.tokens][place : place + length]


# The index.


def places_by_searching(text: list[int]) -> dict[int, int]:
    """What `TextIndex.places` promises, the slow way."""
    for run in RUNS:
        places = [at for at in range(run, len(text)) if text[at - run : at] == text[-run:]][::-1][:MAX_PLACES]
        if places:
            return {
                at: max(n for n in range(run, LONGEST_MATCH + 1) if n <= at and text[at - n : at] == text[-n:])
                for at in places
            }
    return {}


@given(st.lists(st.integers(0, 2), max_size=150))
def test_the_index_finds_what_a_search_finds(text: list[int]) -> None:
    index = TextIndex()
    index.extend(text)
    assert list(index.places().items()) == list(places_by_searching(text).items())


def test_long_repetitions_count_as_the_longest_match() -> None:
    index = TextIndex()
    index.extend([7] * 200)
    assert index.places() == dict.fromkeys(range(199, 199 - MAX_PLACES, -1), LONGEST_MATCH)


@given(TEXTS, st.integers(0, 80), TEXTS)
def test_a_rewound_index_equals_a_fresh_one(text: list[int], length: int, more: list[int]) -> None:
    rewound, fresh = TextIndex(), TextIndex()
    rewound.extend(text)
    rewound.rewind(length)
    rewound.extend(more)
    fresh.extend(text[:length] + more)
    assert rewound.tokens == fresh.tokens
    assert rewound._latest == fresh._latest
    assert rewound._earlier == fresh._earlier


def test_a_run_that_shares_a_slot_is_not_mistaken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_slot", lambda run: 1)
    assert proposed([1, 2, 3, 4, 5, 6], 2) == []
    assert proposed([1, 2, 3, 4, 1, 2], 2) == [3, 4]
    drafter = behind([1, 2, 3, 4, 1, 2])
    drafter.begin([1, 2, 3, 1, 2])
    assert drafter.propose(1).tokens == [3]


# Turns.


@given(TEXTS, st.integers(0, 80), LENGTHS)
def test_told_in_pieces_or_at_once_it_proposes_the_same(text: list[int], cut: int, length: int) -> None:
    pieces, whole = behind(text[:cut]), behind(text)
    for token in text[cut:]:
        pieces.commit([token], 0)
    assert said(pieces, length) == said(whole, length)


@given(TEXTS, TEXTS, TEXTS, LENGTHS)
def test_a_new_turn_behind_any_text_equals_a_fresh_start(
    common: list[int], old: list[int], new: list[int], length: int
) -> None:
    used = behind([*common, *old[:5]])
    used.commit(old[5:], 0)
    used.begin([*common, *new])
    fresh = behind([*common, *new])
    assert said(used, length) == said(fresh, length)
    assert used._index._latest == fresh._index._latest


def test_what_is_no_longer_in_the_text_is_forgotten() -> None:
    drafter = behind([1, 2, 3])
    drafter.commit([4, 5, 1, 2], 0)
    assert drafter.propose(2).tokens == [3, 4]
    drafter.begin([1, 2, 9, 9, 1, 2])
    assert drafter.propose(2).tokens == [9, 9]
    drafter.begin([1, 2])
    assert drafter.propose(2).tokens == []


def slots_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The run length of every look into the index's tables, as they happen."""
    asked: list[int] = []
    real = lookup._slot

    def counting(run: list[int]) -> int:
        asked.append(len(run))
        return real(run)

    monkeypatch.setattr(lookup, "_slot", counting)
    return asked


def test_a_new_turn_indexes_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    text = list(range(5000))
    drafter = behind(text)
    drafter.commit([1, 2, 3], 0)
    asked = slots_asked(monkeypatch)
    drafter.begin([*text, 1, 2, 3, 50, 51])
    assert len(asked) == len(RUNS) * 2
    asked.clear()
    drafter.begin([*text, 1, 7])  # an edit: four tokens go, one comes
    assert len(asked) == len(RUNS) * 5


@pytest.mark.parametrize("length", [100, 10_000])
def test_a_round_asks_the_same_of_a_short_and_a_long_text(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = behind([i % 50 for i in range(length)])
    asked = slots_asked(monkeypatch)
    drafter.propose(8)
    assert len(asked) == 1
    drafter.commit([1, 2, 3], 3)
    assert len(asked) == 1 + 3 * len(RUNS)


# What is learned.


def confidence(text: list[int]) -> float:
    return behind(text).propose(1).confidences[0]


def test_longer_matches_are_trusted_more() -> None:
    def matched(length: int) -> float:
        run = list(range(10, 10 + length))
        return confidence([1, *run, 5, 2, *run])

    trusted = [matched(length) for length in (2, 4, 8, 16, 32)]
    assert trusted == sorted(set(trusted))
    assert trusted[0] < 0.5 and trusted[-1] > 0.85


def test_other_continuations_of_the_same_run_lower_the_confidence() -> None:
    alone = confidence([1, 2, 5, 0, 1, 2])
    contradicted = confidence([1, 2, 5, 0, 1, 2, 6, 3, 1, 2])
    disputed = confidence([1, 2, 5, 0, 1, 2, 6, 3, 1, 2, 6, 4, 1, 2])
    seconded = confidence([1, 2, 5, 0, 1, 2, 5, 3, 1, 2])
    established = confidence([1, 2, 5, 0, 1, 2, 5, 3, 1, 2, 5, 4, 1, 2, 5, 6, 1, 2])
    assert contradicted < alone < seconded < established
    assert contradicted < disputed < seconded
    assert contradicted < 0.2


def test_only_those_that_agreed_so_far_have_a_say() -> None:
    # 1 2 goes on with 5 6 7 and with 5 6 8: the first two are seconded, the third is not, and the rest is alone.
    drafter = behind([1, 2, 5, 6, 7, 0, 1, 2, 5, 6, 8, 9, 3, 1, 2])
    draft = drafter.propose(4)
    assert draft.tokens == [5, 6, 8, 9]
    assert draft.confidences[0] > 0.6 and draft.confidences[1] > 0.7
    assert draft.confidences[2] < 0.3 < draft.confidences[3] < 0.6


def test_confidence_follows_what_really_happened() -> None:
    def after(*, right: bool) -> float:
        drafter = LookupDrafter()
        for i in range(100, 1000, 100):
            drafter.begin([*range(i, i + 6), 0, i, i + 1])
            token = drafter.propose(1).tokens[0]
            drafter.commit([token if right else 1], right)
        drafter.begin([*range(6), 9, 0, 1])
        return drafter.propose(1).confidences[0]

    assert after(right=False) < confidence([*range(6), 9, 0, 1]) - 0.15
    assert after(right=True) > confidence([*range(6), 9, 0, 1]) + 0.25


def test_old_evidence_fades() -> None:
    record = LookupDrafter()._records[0][0]
    for _ in range(10_000):
        record.learn(right=True)
    assert record.confidence > 0.99
    for _ in range(300):
        record.learn(right=False)
    assert record.confidence < 0.2


def test_a_draft_keeps_the_confidences_it_was_made_with() -> None:
    drafter = behind([1, 2, 3, 4, 5, 1, 2])
    draft = drafter.propose(3)
    before = list(draft.confidences)
    drafter.commit([9], 0)
    assert draft.confidences == before


def test_a_draft_cut_to_nothing_is_learned_from() -> None:
    drafter = behind([1, 2, 3, 4, 5, 1, 2])
    assert len(drafter.draft(Cut(limit=4, length=0))) == 0
    drafter.commit([3], 0)
    assert evidence(drafter) == pytest.approx((1, 1))
    assert len(drafter.draft(Cut(limit=4, length=0))) == 0
    drafter.commit([9], 0)
    assert evidence(drafter) == pytest.approx((2, 1))


@given(TEXTS, LENGTHS, st.lists(st.integers(0, 4), max_size=14), st.integers(0, 14))
def test_every_judged_token_counts_once(text: list[int], length: int, new: list[int], same: int) -> None:
    drafter = behind(text)
    tokens = drafter.propose(length).tokens
    new = [*tokens[:same], *new]
    right = next((i for i, (a, b) in enumerate(zip(tokens, new, strict=False)) if a != b), min(len(tokens), len(new)))
    wrong = right < min(len(tokens), len(new))
    drafter.commit(new, 0)
    assert evidence(drafter) == pytest.approx((right + wrong, right))
    # Nothing is learned twice, and nothing from a round without a proposal.
    drafter.commit([1, 2], 0)
    drafter.commit((), 0)
    assert evidence(drafter) == pytest.approx((right + wrong, right))


def test_a_refused_continuation_loses_when_the_answer_is_written_again() -> None:
    prompt = [1, 2, 5, 8, 1, 2, 6, 9, 1, 2]
    drafter = behind(prompt)
    assert drafter.propose(1).tokens == [6]
    drafter.commit([5], 0)
    drafter.begin(prompt)
    assert drafter.propose(1).tokens == [5]
    drafter.commit([5], 1)
    drafter.begin(prompt)
    assert drafter.propose(1).tokens == [5]
    drafter.commit([6], 0)
    drafter.begin(prompt)
    assert drafter.propose(1).tokens == [6]  # both were wrong once: the latest again


def test_a_refused_continuation_that_was_right_later_is_taken_back() -> None:
    prompt = [1, 2, 5, 8, 1, 2, 6, 9, 1, 2]
    drafter = behind(prompt)
    for new in ([5], [6], [6]):
        drafter.propose(1)
        drafter.commit(new, 0)
        drafter.begin(prompt)
    assert drafter._refused == {2}
    assert drafter.propose(1).tokens == [6]


def test_refusals_behind_the_kept_text_are_forgotten() -> None:
    drafter = behind([1, 2, 5, 1, 2])
    drafter.propose(1)
    drafter.commit([6], 0)
    assert drafter._refused == {2}
    drafter.begin([1, 2, 5, 7, 1, 2])
    assert drafter._refused == {2}
    drafter.begin([1, 2, 7, 1, 2])
    assert drafter._refused == set()
