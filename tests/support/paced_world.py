"""A pair without models: it knows what each decode costs and how likely each draft token is accepted, and keeps time.

Pacing can be watched in it over thousands of tokens, with nothing but the seed to chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from app.engine.pacing import Pacing
from app.engine.protocol import MAX_DRAFT_LENGTH
from app.engine.rounds import DrafterKind, Round, RoundTimes, Token, TokenSource
from app.engine.sampling import Distribution
from app.engine.verify import Draft

Confidence = Callable[[int, np.random.Generator], float]  # of a token at this place in the text
Chance = Callable[[int, float], float]  # of acceptance, by place in the text and confidence

UNIT = 0.025  # seconds of a plain round


def processor(n: int) -> float:
    """Cost of a batch, in units: the second token costs most, as measured on two cores."""
    return {1: 1.0, 2: 1.72, 3: 1.9, 4: 2.16, 5: 2.29, 6: 2.48}.get(n, 2.48 + 0.21 * (n - 6))


def graphics(n: int) -> float:
    return 1.0 + 0.04 * (n - 1)


def mixed(at: int, rng: np.random.Generator) -> float:
    return float(rng.beta(12, 0.5)) if rng.random() < 0.6 else float(rng.uniform(0.1, 0.8))


def calibrated(at: int, confidence: float) -> float:
    return min(0.99, 0.1 + 0.9 * confidence)


@dataclass
class World:
    cost: Callable[[int], float] = processor
    draft_cost: float = 0.17  # of a token, in units
    confidence: Confidence = mixed
    chance: Chance = calibrated
    bulk: float = 0.17  # share of that for a token in a large batch
    noise: float = 0.03
    outliers: float = 0.0  # share of decodes that take five times as long
    seed: int = 0
    rounds: list[Round] = field(default_factory=list)
    draft_steps: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def write(self, pacing: Pacing, n_tokens: int, prompt: int = 40) -> float:
        """An answer of so many tokens. Returns its tokens per second."""
        rng, done, pending, seconds = self._rng, 0, prompt, 0.0
        while done < n_tokens:
            draft = Draft(DrafterKind.model)
            pace = pacing.begin(min(MAX_DRAFT_LENGTH, n_tokens - done - 1) if done else 0, n_tokens - done)
            while pace.limit and pace.goes_on(DrafterKind.model, pending):
                draft.steps.append((pending, self._takes(self._draft_units(pending))))
                pending = 1
                confidence = self.confidence(done + len(draft), rng)
                if not pace.takes(DrafterKind.model, confidence):
                    break
                draft.tokens.append(0)
                draft.probs.append(Distribution.certain(0))
                draft.confidences.append(confidence)
            accepted = 0
            while accepted < len(draft) and rng.random() < self.chance(done + accepted, draft.confidences[accepted]):
                accepted += 1
            own = self._takes(self.cost(len(draft) + 1))
            new = min(accepted + 1, n_tokens - done)
            finished = Round(
                len(self.rounds),
                DrafterKind.model if len(draft) else DrafterKind.none,
                (Token(0, TokenSource.plain),) * new,
                len(draft),
                accepted,
                len(draft) - accepted,
                0,
                RoundTimes(draft.seconds, own, 0.0),
            )
            pacing.observe(finished, draft, self.confidence(done, rng))
            self.rounds.append(finished)
            self.draft_steps += len(draft.steps)
            done += new
            seconds += draft.seconds + own
            # All accepted: the last draft token and the target's own are new to the draft.
            pending = 1 + (len(draft) > 0 and accepted == len(draft)) if draft.steps else pending + new
        self.seconds += seconds
        return n_tokens / seconds

    def _draft_units(self, pending: int) -> float:
        return self.draft_cost * max({1: 1.0, 2: 1.6}.get(pending, 1.6), pending * self.bulk)

    def _takes(self, units: float) -> float:
        slow = 5.0 if self._rng.random() < self.outliers else 1.0
        return UNIT * units * slow * float(np.exp(self._rng.normal() * self.noise))
