from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.engine.trimming import first_turn_sent

TURNS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=40)  # question, answer


def start_of(turns: list[tuple[int, int]], *, fixed: int = 10, room: int = 200) -> int:
    asked = [question for question, _ in turns]
    return first_turn_sent([question + answer for question, answer in turns], asked, fixed=fixed, room=room)


def test_all_that_fits_is_sent() -> None:
    assert start_of([(20, 20)] * 4 + [(30, 0)]) == 0


def test_turns_go_until_half_of_their_room_is_free() -> None:
    assert start_of([(20, 20)] * 4 + [(31, 0)]) == 3  # of 190 tokens of room, 40 + 31 are taken; 80 + 31 are too many


def test_then_the_start_stays_while_the_rest_grows() -> None:
    turns = [(20, 20)] * 4 + [(31, 20)]
    starts = [start_of([*turns, *[(10, 10)] * more, (10, 0)]) for more in range(6)]
    assert starts == [3, 3, 3, 3, 3, 6]


def test_the_last_turn_is_sent_even_if_it_does_not_fit() -> None:
    assert start_of([(20, 20), (500, 0)]) == 1
    assert start_of([(20, 20), (5, 0)], fixed=300) == 1


@given(TURNS)
def test_what_is_sent_fits_unless_it_is_one_turn(turns: list[tuple[int, int]]) -> None:
    start = start_of(turns)
    sent = sum(question + answer for question, answer in turns[start:-1]) + turns[-1][0]
    assert 10 + sent <= 200 or start == len(turns) - 1


@given(TURNS)
def test_the_start_never_goes_back_as_a_conversation_grows(turns: list[tuple[int, int]]) -> None:
    starts = [start_of(turns[:length]) for length in range(1, len(turns) + 1)]
    assert starts == sorted(starts)
