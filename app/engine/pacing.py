"""How long the next draft should be: as long as it pays, and not at all where plain decoding is faster.

`generate` asks for a Pace before each round, drafters ask the Pace before each step of theirs, and every finished
round is reported to `observe`.

A round is a gamble: each draft token costs time in the draft model and in the target's batch, and brings a token only
if it and all before it are accepted. `LearningPacing` stops where the next one is worth less than the time it takes,
time being worth what this pair can make of it: `rate` tokens a second. That is a problem of optimal stopping, solved
from the longest draft backwards (`Policy`), with costs and acceptance as learned so far (`Experience`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from app.engine.acceptance import Acceptance, bins_of
from app.engine.costs import BULK
from app.engine.experience import LEAST_PROBING, MOST_PROBING, Experience
from app.engine.protocol import MAX_DRAFT_LENGTH, PacingReport
from app.engine.rounds import DrafterKind, Round
from app.engine.sampling import Floats
from app.engine.verify import Draft


class Pace(Protocol):
    """One round's pacing. It knows confidences, never drawn tokens: exactness rests on that (DESIGN, section 3)."""

    limit: int  # the most draft tokens there is room for
    needs_confidence: bool  # else any number will do

    def goes_on(self, kind: DrafterKind, pending: int) -> bool:
        """Whether the next draft token is worth computing; `pending` (>= 1) tokens must be evaluated for it."""

    def takes(self, kind: DrafterKind, confidence: float) -> bool:
        """Whether the next draft token, computed with this confidence, is worth verifying. False ends the draft."""

    def cut(self, kind: DrafterKind, confidences: Sequence[float], rival: int | None = None) -> int:
        """How many of ready draft tokens are worth verifying: their number, or fewer.

        0 as well where a draft model, with `rival` tokens to evaluate first, would bring more.
        """


class Pacing(Protocol):
    needs_confidence: bool  # of the target; else any number will do

    def begin(self, limit: int, remaining: int) -> Pace:
        """The pacing of the next round: room for `limit` (>= 0) draft tokens, `remaining` tokens of the answer left."""

    def observe_prompt(self, n_tokens: int, seconds: float) -> None:
        """The target read so many tokens of a prompt in that time."""

    def observe(self, finished: Round, draft: Draft, target_confidence: float = 1.0, lag: int = 0) -> None:
        """What the last round cost and brought, and how sure the target was of its last token (`acceptance`).

        `lag` tokens had to be evaluated again in it, because an earlier rejection cost the target its memory of them.
        """

    def report(self) -> PacingReport:
        """What pacing does and why, for people."""


# -- a fixed length -----------------------------------------------------------------------------------------------


class FixedPacing:
    """The same length every round."""

    needs_confidence = False

    def __init__(self, length: int) -> None:
        self._length = max(0, min(MAX_DRAFT_LENGTH, length))

    def begin(self, limit: int, remaining: int = 0) -> Pace:
        return _FixedPace(min(limit, self._length))

    def observe_prompt(self, n_tokens: int, seconds: float) -> None:
        """A fixed length learns nothing."""

    def observe(self, finished: Round, draft: Draft, target_confidence: float = 1.0, lag: int = 0) -> None:
        """A fixed length learns nothing."""

    def report(self) -> PacingReport:
        return PacingReport("on" if self._length else "off", f"The draft length is fixed at {self._length}.")


class _FixedPace:
    needs_confidence = False

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0

    def goes_on(self, kind: DrafterKind, pending: int) -> bool:
        return self._taken < self.limit

    def takes(self, kind: DrafterKind, confidence: float) -> bool:
        self._taken += 1
        return True

    def cut(self, kind: DrafterKind, confidences: Sequence[float], rival: int | None = None) -> int:
        return min(self.limit, len(confidences))


# -- a length that pays -------------------------------------------------------------------------------------------

_GRID = np.linspace(0.0, 1.0, 33)  # of the probability that a whole draft so far is accepted
_RENEWED_AFTER = 6.0  # rounds with a draft, or tested draft tokens
_PLAIN_EVIDENCE = 0.25  # of a round without a draft, which tells little that is new
_MOSTLY_OFF = 0.15  # share of rounds with a draft up to which people should read that drafting is paused
_FIRST_BUDGET = 1.5  # plain rounds' worth of time to look at a pair never seen before
_HORIZON = 256  # tokens an answer is expected to go on, when nothing limits it


class Policy:
    """When to stop drafting, for one drafter, at a given worth of time. Solved backwards from the longest draft.

    With n tokens taken that will all be accepted with probability S, stopping is worth -rate * target(n + 1). Going on
    costs a step of the draft model and shows the next confidence; taking that token brings S times its acceptance,
    and the same choice with n + 1. The tokens already taken are in neither, because they are brought in both.
    """

    def __init__(self, target_s: Floats, draft_s: float, rates: Floats, ahead: Floats, rate: float) -> None:
        """`target_s`: seconds of batches of 1 … γ_max + 1 tokens; `rates`, `ahead`: as Acceptance gives them."""
        self.rates = rates
        self.stopping = -rate * target_s
        self._ahead = ahead
        self._step = rate * draft_s

    @cached_property
    def _solved(self) -> tuple[Floats, Floats]:
        """Worth of the best choice and of going on, by tokens taken and S: shapes (γ_max + 1, grid). Ready tokens need
        neither."""
        longest = len(self.stopping) - 1
        best = np.full((longest + 1, len(_GRID)), self.stopping[longest])
        going = np.full_like(best, -np.inf)
        survivals = np.outer(_GRID, self.rates)
        # Reading the worth between two points of the grid is the same sum for every n.
        last = len(_GRID) - 1
        below = np.minimum((survivals * last).astype(np.intp), last - 1).ravel()
        share = survivals.ravel() * last - below
        rows = np.arange(survivals.size)
        between = np.zeros((survivals.size, len(_GRID)))
        between[rows, below], between[rows, below + 1] = 1.0 - share, share
        for n in range(longest - 1, -1, -1):
            taking = survivals + (between @ best[n + 1]).reshape(survivals.shape)
            going[n] = np.maximum(taking, self.stopping[n]) @ self._ahead[min(n, 1)] - self._step
            best[n] = np.maximum(going[n], self.stopping[n])
        return best, going

    @property
    def surplus(self) -> float:
        """Tokens a round brings beyond what its time is worth: positive while `rate` is below what can be reached."""
        best, _ = self._solved
        return 1.0 + float(best[0, -1])

    def going(self, n: int, survival: float) -> float:
        """The worth of going on over that of stopping, in tokens."""
        _, going = self._solved
        return float(np.interp(survival, _GRID, going[n]) - self.stopping[n])

    def taking(self, n: int, survival: float, at: int) -> float:
        """The worth over that of stopping of taking a token whose confidence lies in bin `at`."""
        best, _ = self._solved
        survival *= float(self.rates[at])
        return survival + float(np.interp(survival, _GRID, best[n + 1]) - self.stopping[n])

    def ready(self, bins: Sequence[int]) -> tuple[int, float]:
        """Of ready tokens: how many to take, and the worth of that over taking none."""
        survivals = self.rates[list(bins)].cumprod()
        worth = survivals.cumsum() + self.stopping[1 : len(bins) + 1] - self.stopping[0]
        best = int(worth.argmax())
        return (best + 1, float(worth[best])) if worth[best] > 0 else (0, 0.0)


class LearningPacing:
    """Learns costs and acceptance while chatting; never asks more of a draft than it brings."""

    needs_confidence = True

    def __init__(self, experience: Experience, setting: str, *, first_draft_cost: float = 0.2) -> None:
        """`first_draft_cost`: a guess at the draft's time over the target's, used until it was measured."""
        self.experience = experience
        self._setting = setting
        self._first_draft_cost = first_draft_cost
        self._rate = 0.0  # tokens per second that time is worth
        self._policies: dict[tuple[DrafterKind, int], Policy] = {}  # by the level of the target's confidence too
        self._evidence = 0.0
        self._pace: _LearningPace | None = None  # of the round under way
        self._round_s = 0.0  # of recent rounds
        self._lengths = 0.0  # of recent drafts
        self._drafting = 0.0  # share of recent rounds with a draft
        for kind in (DrafterKind.model, DrafterKind.lookup):
            self.acceptance(kind).begin()

    def begin(self, limit: int, remaining: int) -> Pace:
        self._pace = _LearningPace(self, min(limit, MAX_DRAFT_LENGTH), min(remaining, _HORIZON))
        return self._pace

    def observe_prompt(self, n_tokens: int, seconds: float) -> None:
        if n_tokens >= BULK:
            self.experience.target.observe(n_tokens, seconds)

    def acceptance(self, kind: DrafterKind) -> Acceptance:
        return self.experience.acceptance(kind, self._setting)

    def observe(self, finished: Round, draft: Draft, target_confidence: float = 1.0, lag: int = 0) -> None:
        target, drafts = self.experience.target, self.experience.draft
        own_s = finished.times.total - finished.times.draft
        if finished.drafted or not lag:  # else it would pass for the cost of a plain round
            target.observe(finished.drafted + 1, own_s)
        for n, seconds in draft.steps:
            drafts.observe(n, seconds)
        tested = finished.accepted + (finished.rejected > 0)
        pace, self._pace = self._pace, None
        if pace and pace.looked:
            self.acceptance(DrafterKind.model).look(pace.looked)
        elif not len(draft):
            self.acceptance(DrafterKind.model).rest()
        self.acceptance(DrafterKind.model).hear(target_confidence)
        if len(draft):
            self.acceptance(draft.drafter).observe(draft.confidences, finished.accepted, tested)
        if pace and pace.probed:
            self.experience.probing = max(LEAST_PROBING, self.experience.probing / 2)
        elif finished.accepted:
            self.experience.probing = MOST_PROBING
        if self.experience.budget_s is not None:
            self.experience.budget_s += self.experience.probing * finished.times.total
        self._round_s += 0.1 * (finished.times.total - self._round_s) if self._round_s else finished.times.total
        self._drafting += 0.1 * ((finished.drafted > 0) - self._drafting)
        if finished.drafted:
            self._lengths += 0.2 * (finished.drafted - self._lengths) if self._lengths else finished.drafted
        self._evidence += 1 + tested if len(draft) or (pace and pace.looked) else _PLAIN_EVIDENCE
        if self._evidence >= _RENEWED_AFTER:
            self._evidence = 0.0
            self._policies.clear()

    # -- what a pace asks -----------------------------------------------------------------------------------------

    @property
    def caution(self) -> int:
        """The longest draft that what was accepted so far speaks for: a pair never seen before starts small."""
        return 2 + int(sum(self.acceptance(kind).accepted.sum() for kind in (DrafterKind.model, DrafterKind.lookup)))

    @property
    def rate(self) -> float:
        """Tokens per second that a second is worth: never less than plain decoding makes of it."""
        return max(self._rate, 1.0 / self.experience.target.seconds(1))

    def policy(self, kind: DrafterKind) -> Policy | None:
        """None before the first plain round told what time is."""
        if not self.experience.target.unit_s:
            return None
        key = kind, self.acceptance(kind).level
        if key not in self._policies:
            self._policies[key] = self._solve(kind)
        return self._policies[key]

    def draft_s(self, pending: int) -> float:
        """Expected seconds of the draft model over so many tokens."""
        drafts, target = self.experience.draft, self.experience.target
        one_s = drafts.unit_s or self._first_draft_cost * target.seconds(1)
        if pending < BULK:
            return one_s * drafts.ratio(pending)
        # What it gains by a large batch is the target's gain, until it was seen.
        per_token = drafts.bulk or target.bulk
        return one_s * (drafts.ratio(pending) if per_token is None else pending * per_token)

    def affords(self, seconds: float) -> bool:
        """Whether so much may be spent on looking; if so it is spent."""
        if self.experience.budget_s is None:
            seen_before = self.experience.draft.unit_s is not None
            self.experience.budget_s = 0.0 if seen_before else _FIRST_BUDGET * self.experience.target.seconds(1)
        if seconds > self.experience.budget_s:
            return False
        self.experience.budget_s -= seconds
        return True

    def pays_to_read(self, pending: int, remaining: int) -> bool:
        """Whether the draft model should read what it has missed: the rest of the answer must earn it."""
        extra_s = self.draft_s(pending) - self.draft_s(1)
        plain = 1.0 / self.experience.target.seconds(1)
        return extra_s <= remaining * (1.0 / plain - 1.0 / self.rate)

    def _solve(self, kind: DrafterKind) -> Policy:
        target_s = np.array([self.experience.target.seconds(n) for n in range(1, MAX_DRAFT_LENGTH + 2)])
        acceptance = self.acceptance(kind)
        step_s = 0.0 if kind is DrafterKind.lookup else self.draft_s(1)
        policy = Policy(target_s, step_s, acceptance.rates(), acceptance.ahead(), self.rate)
        if kind is not DrafterKind.lookup:
            # One step of Dinkelbach's method (1967) towards the rate at which a round brings what its time is worth.
            self._rate = self.rate + policy.surplus / max(self._round_s, float(target_s[0]))
        return policy

    # -- for people -----------------------------------------------------------------------------------------------

    def report(self) -> PacingReport:
        target, drafts = self.experience.target, self.experience.draft
        is_on = self._drafting > _MOSTLY_OFF
        length = max(1, round(self._lengths))
        tokens = "1 draft token" if length == 1 else f"{length} draft tokens"
        return PacingReport(
            "on" if is_on else "paused",
            f"On: usually {tokens} a round." if is_on else "Paused: plain is faster here.",
            typical_length=self._lengths,
            plain_tokens_per_s=1.0 / target.seconds(1) if target.unit_s else None,
            target_ms={n: 1000 * seconds for n, seconds in target.measured.items()},
            draft_ms=None if drafts.unit_s is None else 1000 * drafts.seconds(1),
        )


class _LearningPace:
    """One round: asks the policy at each step, and keeps how much was taken and how likely it stands."""

    needs_confidence = True

    def __init__(self, pacing: LearningPacing, limit: int, remaining: int) -> None:
        self.limit = min(limit, pacing.caution)
        self.probed = False
        self.looked: list[float] = []
        self._pacing = pacing
        self._remaining = remaining
        self._taken = 0
        self._survival = 1.0

    def goes_on(self, kind: DrafterKind, pending: int) -> bool:
        policy = self._pacing.policy(kind)
        if policy is None or self._taken >= self.limit:
            return False
        pays = policy.going(self._taken, self._survival) > 0
        if self._taken:
            return pays
        if pays and self._pacing.pays_to_read(pending, self._remaining):
            return True
        self.probed = self._pacing.affords(self._pacing.draft_s(pending))
        return self.probed

    def takes(self, kind: DrafterKind, confidence: float) -> bool:
        self.looked.append(confidence)
        policy = self._pacing.policy(kind)
        (at,) = bins_of([confidence])
        if policy is None or policy.taking(self._taken, self._survival, at) <= 0:
            return False
        self._taken += 1
        self._survival *= float(policy.rates[at])
        return True

    def cut(self, kind: DrafterKind, confidences: Sequence[float], rival: int | None = None) -> int:
        policy = self._pacing.policy(kind)
        if policy is None or not confidences:
            return 0
        taken, worth = policy.ready(bins_of(confidences[: self.limit]))
        model = self._pacing.policy(DrafterKind.model) if rival is not None and taken else None
        if model and rival and model.going(0, 1.0) > worth and self._pacing.pays_to_read(rival, self._remaining):
            return 0
        return taken
