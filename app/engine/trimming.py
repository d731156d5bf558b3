"""Which turns of a conversation are still sent when not all of them fit the context."""

from __future__ import annotations

from collections.abc import Sequence


def first_turn_sent(whole: Sequence[int], asked: Sequence[int], *, fixed: int, room: int) -> int:
    """The index of the oldest turn that is still sent; the last always is.

    `whole[i]` and `asked[i]` are the tokens of turn i with and without its answer, `fixed` those that every prompt has.
    A turn less each time would move everything behind it, and every prompt would be read anew. So the conversation is
    replayed, and where a prompt does not fit, turns go until the rest takes half of its room: then many fit again. The
    result depends on nothing but the conversation.
    """
    start = held = 0
    for turn, question in enumerate(asked):
        if fixed + held + question > room:
            while start < turn and held + question > (room - fixed) // 2:
                held -= whole[start]
                start += 1
        held += whole[turn]
    return start
