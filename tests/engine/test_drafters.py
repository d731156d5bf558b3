"""Lookup in the text so far."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.engine.drafters import LookupDrafter
from app.engine.pacing import FixedPacing
from app.engine.rounds import DrafterKind


def lookup(text: list[int], length: int) -> list[int]:
    drafter = LookupDrafter()
    drafter.begin(text)
    return drafter.draft(FixedPacing(length).begin(length)).tokens


def test_what_followed_before_is_proposed() -> None:
    assert lookup([1, 2, 3, 4, 5, 9, 1, 2], 3) == [3, 4, 5]


def test_the_longest_run_decides() -> None:
    # 2 3 was followed by 7 last, but 1 2 3 by 4.
    assert lookup([1, 2, 3, 4, 9, 2, 3, 7, 8, 1, 2, 3], 1) == [4]


def test_the_latest_of_equal_runs_decides() -> None:
    assert lookup([1, 2, 5, 1, 2, 6, 1, 2], 1) == [6]


def test_a_repetition_goes_on_in_its_own_proposal() -> None:
    assert lookup([5, 6, 5, 6, 5, 6], 5) == [5, 6, 5, 6, 5]


def test_nothing_new_is_proposed() -> None:
    assert lookup([1, 2, 3, 4], 3) == []
    assert lookup([1], 3) == []
    assert lookup([], 3) == []


def test_a_draft_is_certain_of_its_tokens() -> None:
    drafter = LookupDrafter()
    drafter.begin([1, 2, 3, 1, 2])
    draft = drafter.draft(FixedPacing(2).begin(2))
    assert draft.drafter is DrafterKind.lookup
    assert [d.probability(t) for d, t in zip(draft.probs, draft.tokens, strict=True)] == [1.0, 1.0]


def test_a_new_answer_forgets_the_old_text() -> None:
    drafter = LookupDrafter()
    drafter.begin([1, 2, 3])
    drafter.begin([1, 2])
    assert len(drafter.draft(FixedPacing(1).begin(1))) == 0


@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.integers(0, 60), st.integers(1, 8))
def test_told_in_pieces_or_at_once_it_proposes_the_same_and_only_what_stood_there(
    text: list[int], cut: int, length: int
) -> None:
    pieces = LookupDrafter()
    pieces.begin(text[:cut])
    for token in text[cut:]:
        pieces.commit([token], 0)
    proposed = pieces.draft(FixedPacing(length).begin(length)).tokens
    assert proposed == lookup(text, length)
    if proposed:
        run = [*text[-2:], proposed[0]]
        assert any(text[i : i + 3] == run for i in range(len(text)))
