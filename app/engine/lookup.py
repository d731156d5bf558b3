"""A drafter without a model: it proposes what followed the last tokens where they stood before (prompt lookup).

After Saxena's prompt lookup decoding (2023). How sure it is of a token depends on how long the match is and on whether
the other places of the same run agree, and is learned from how such tokens fared.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from app.engine.memory import reusable_prefix
from app.engine.pacing import Pace
from app.engine.rounds import DrafterKind
from app.engine.sampling import Distribution
from app.engine.verify import Draft

RUNS = (16, 8, 4, 2)  # indexed run lengths, longest first; a match is then followed backwards to its real length
LONGEST_MATCH = 32  # longer matches are not told apart
MAX_PLACES = 8  # places of a run that are looked at, latest first
_SLOTS = 1 << 17


class TextIndex:
    """A text, and where its runs of tokens stand. A place is the position behind a run, where a continuation begins.

    Built as deflate's hash chains are: per run length, a table points at the latest place of a run and every place at
    the one before it. A token costs four bytes per run length, and what was added can be taken back exactly.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        # Zero is no place: no run ends in front of the first token.
        self._latest = {run: array("i", bytes(4 * _SLOTS)) for run in RUNS}
        self._earlier = {run: array("i", bytes(4 * run)) for run in RUNS}  # by place

    def extend(self, tokens: Sequence[int]) -> None:
        text = self.tokens
        for token in tokens:
            place = len(text)
            for run in RUNS:
                if place >= run:
                    latest, slot = self._latest[run], _slot(text[-run:])
                    self._earlier[run].append(latest[slot])
                    latest[slot] = place
            text.append(token)

    def rewind(self, length: int) -> None:
        """Forget what stands behind the first `length` tokens."""
        text = self.tokens
        while len(text) > length:
            text.pop()
            for run in RUNS:
                if len(text) >= run:
                    self._latest[run][_slot(text[-run:])] = self._earlier[run].pop()

    def places(self) -> dict[int, int]:
        """Places of the longest indexed run that ends the text and stood before: {place: length of the match}."""
        text = self.tokens
        for run in RUNS:
            if len(text) <= run:
                continue
            end = text[-run:]
            found: dict[int, int] = {}
            earlier, place = self._earlier[run], self._latest[run][_slot(end)]
            for _ in range(MAX_PLACES):
                if place and text[place - run : place] == end:  # another run may share the slot
                    found[place] = self._match(place, run)
                place = earlier[place]
            if found:
                return found
        return {}

    def _match(self, place: int, length: int) -> int:
        """How many tokens before `place` are those that end the text, of which `length` are known to be."""
        text = self.tokens
        longest = min(place, LONGEST_MATCH)
        while length < longest and text[place - 1 - length] == text[-1 - length]:
            length += 1
        return length


def _slot(run: list[int]) -> int:
    return hash(tuple(run)) % _SLOTS


class Support(IntEnum):
    """What the other places of a run say of a draft token, those that agreed with the draft up to it."""

    contradicted = 0  # none has it
    disputed = 1  # some have it, some have another
    alone = 2  # there are no others
    seconded = 3  # one or two more have it, and none another
    established = 4  # three or more have it, and none another


# A first guess at how often such a token is right is length / (length + doubt). Fitted to edited source files, fresh
# source files and prose; within some rounds an answer's own counts outweigh it.
_DOUBT = (14.0, 2.5, 3.5, 1.0, 0.3)
_GUESS_WEIGHT = 4.0  # tokens that the guess counts for
_MEMORY = 128.0  # tokens after which the older half of the evidence counts half
_BANDS = (2, 3, 4, 5, 7, 10, 15, 23, LONGEST_MATCH)  # match lengths that are counted together, by their least


class Record:
    """How draft tokens with about the same match length and the same support fared."""

    def __init__(self, length: int, support: Support) -> None:
        self.right = _GUESS_WEIGHT * length / (length + _DOUBT[support])
        self.seen = _GUESS_WEIGHT

    @property
    def confidence(self) -> float:
        return self.right / self.seen

    def learn(self, *, right: bool) -> None:
        if self.seen >= _MEMORY:
            self.right, self.seen = self.right / 2, self.seen / 2
        self.right += right
        self.seen += 1


class _Proposal(NamedTuple):
    place: int
    tokens: list[int]
    records: list[Record]  # one per token


class LookupDrafter:
    """Proposes the best known continuation of the text: longest match first, then what was not refused, then latest.

    One drafter may serve a whole conversation: `begin` indexes only what is new, and what was learned stays.
    """

    kind = DrafterKind.lookup
    paused: str | None = None

    def __init__(self) -> None:
        self._index = TextIndex()
        self._records = [[Record(length, support) for support in Support] for length in _BANDS]
        self._refused: set[int] = set()  # places whose continuation was wrong when it was last proposed
        self._proposal: _Proposal | None = None

    def begin(self, tokens: Sequence[int]) -> None:
        kept = reusable_prefix(self._index.tokens, tokens)
        self._index.rewind(kept)
        self._index.extend(tokens[kept:])
        self._refused = {place for place in self._refused if place < kept}
        self._proposal = None

    def draft(self, pace: Pace) -> Draft:
        draft = self.propose(pace.limit)
        length = pace.cut(self.kind, draft.confidences)
        return Draft(self.kind, draft.tokens[:length], draft.probs[:length], draft.confidences[:length])

    def propose(self, limit: int) -> Draft:
        """Up to `limit` tokens behind the text. All of them or none: a draft that reaches the end of the text goes on
        in itself, as a repetition would. `commit` learns from the last proposal, however much of it was used."""
        self._proposal = None
        matches = self._index.places()
        if not matches or limit < 1:
            return Draft(self.kind)
        place = max(matches, key=lambda at: (matches[at], at not in self._refused, at))
        text = self._index.tokens
        tokens = text[place : place + limit]
        period = len(text) - place
        while len(tokens) < limit:
            tokens.append(tokens[-period])
        others = [other for other in matches if other != place]
        records = [
            self._records[bisect_right(_BANDS, matches[place] + i) - 1][support]
            for i, support in enumerate(_supports(text, tokens, others))
        ]
        self._proposal = _Proposal(place, tokens, records)
        return Draft(
            self.kind,
            list(tokens),
            [Distribution.certain(token) for token in tokens],
            [record.confidence for record in records],
        )

    def commit(self, tokens: Sequence[int], accepted: int) -> None:
        if self._proposal and tokens:
            self._learn(self._proposal, tokens)
        self._proposal = None
        self._index.extend(tokens)

    def _learn(self, proposal: _Proposal, tokens: Sequence[int]) -> None:
        """Compare with what the text became. Behind the first wrong token a proposal says nothing any more."""
        for i, (proposed, token) in enumerate(zip(proposal.tokens, tokens, strict=False)):
            right = proposed == token
            proposal.records[i].learn(right=right)
            if right:
                self._refused.discard(proposal.place + i)
            else:
                self._refused.add(proposal.place + i)
                break


def _supports(text: list[int], tokens: list[int], others: list[int]) -> list[Support]:
    """For each of `tokens`, what the continuations at `others` say of it."""
    with_it = [0] * len(tokens)
    without = [0] * len(tokens)
    for other in others:
        for i, (token, theirs) in enumerate(zip(tokens, text[other : other + len(tokens)], strict=False)):
            if token != theirs:
                without[i] += 1
                break
            with_it[i] += 1
    return [_support(n, against) for n, against in zip(with_it, without, strict=True)]


def _support(with_it: int, without: int) -> Support:
    if without:
        return Support.disputed if with_it else Support.contradicted
    if with_it:
        return Support.established if with_it > 2 else Support.seconded
    return Support.alone
