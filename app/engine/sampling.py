"""From logits and SamplingParams to the target's distribution over the tokens that survive its samplers.

The samplers run in the order that the params name, llama.cpp's unless changed; one with a neutral value is left out.
In that order top-p and min-p see the distribution before the temperature. A temperature of 0 is the limit: one token
survives. Drafts are drawn from the same function over the draft's logits, so that the two are as near as they can be.

XTC and mirostat fit in because nothing in them is left to chance or to the rounds: XTC's coin is a function of seed
and position, and mirostat's state one of the emitted tokens.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Sequence

import numpy as np

from app.engine import filters
from app.engine.distribution import Distribution, Floats, Ids, Logits
from app.engine.filters import Candidates
from app.engine.limits import validate
from app.engine.mirostat import Mirostat
from app.engine.noise import coin
from app.engine.penalties import Dry, RepeatPenalties, Spellings, biased
from app.engine.protocol import SamplingParams

__all__ = ["Distribution", "Floats", "Ids", "Sampler", "active_samplers", "comparison_note", "fresh_seed", "validate"]

_LOOKING_BACK = ("penalties", "dry")
_CLASSIC = ("top_k", "top_p", "min_p", "temperature")

Stage = Callable[[Candidates, Sequence[int], Sequence[int]], Candidates]


def fresh_seed() -> int:
    return secrets.randbits(32)


def is_greedy(params: SamplingParams) -> bool:
    """Whether one token survives whatever the other settings are."""
    return params.temperature <= 0 and params.dynatemp_range <= 0 and "temperature" in params.order


def active_samplers(params: SamplingParams) -> tuple[str, ...]:
    """The samplers that have something to do, in order. At temperature 0 and with mirostat none of the filters has."""
    penalised = params.repeat_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
    has_work = {
        "penalties": penalised and params.repeat_last_n > 0,
        "dry": params.dry_multiplier > 0 and params.dry_last_n > 0,
        "top_n_sigma": params.top_n_sigma > 0,
        "top_k": params.top_k > 0,
        "typical": params.typical_p < 1,
        "top_p": params.top_p < 1,
        "min_p": params.min_p > 0,
        "xtc": params.xtc_probability > 0 and params.xtc_threshold <= 0.5,
        "temperature": params.temperature != 1.0 or params.dynatemp_range > 0,
    }
    active = [name for name in params.order if has_work[name]]
    if is_greedy(params):
        return (*(name for name in active if name in _LOOKING_BACK), "temperature")
    if params.mirostat:
        return (*(name for name in active if name in (*_LOOKING_BACK, "temperature")), "mirostat")
    return tuple(active)


def comparison_note(params: SamplingParams) -> str | None:
    """Why drafts are compared instead of weighed at these settings, as a sentence for people; None if they are not."""
    active = active_samplers(params)
    name = "XTC" if "xtc" in active else "Mirostat" if "mirostat" in active else None
    return name and (
        f"{name} changes the odds from token to token, so each draft token is compared with the target's own draw: "
        "the answer stays exact, fewer draft tokens are accepted."
    )


class Sampler:
    """SamplingParams made ready for one answer: from logits behind a text to what the next token is drawn from.

    `suppressed` are ids that never survive. `seed` decides XTC's coins. `spellings` gives the token sequences that
    spell a sequence breaker of DRY (see `app.engine.penalties.spellings`); without it there are no breakers.
    """

    def __init__(
        self,
        params: SamplingParams,
        suppressed: Ids | None = None,
        *,
        seed: int | None = None,
        spellings: Spellings | None = None,
    ) -> None:
        self.active = active_samplers(params)
        self._params = params
        self._seed = seed if seed is not None else params.seed or 0
        self._suppressed = suppressed if suppressed is not None and len(suppressed) else None
        self._looking_back = self._penalties(spellings)
        self._writes = bool(self._looking_back or params.logit_bias or self._suppressed is not None)
        self._mirostat = Mirostat(params) if "mirostat" in self.active else None  # shared with the draft's sampler
        self._is_for_draft = False

        # Nearly every answer wants top-k, top-p and min-p behind the penalties: these go together, in a few steps.
        rest = self.active[len(self._looking_back) :] if self._penalties_lead() else self.active
        is_dynamic = params.dynatemp_range > 0 and "temperature" in rest
        self._is_classic = not is_dynamic and rest == tuple(name for name in _CLASSIC if name in rest)
        self._is_certain = is_greedy(params) or (self._is_classic and params.top_k == 1 and "top_k" in rest)
        self._k = params.top_k if "top_k" in rest else 0
        self._share = params.top_p if "top_p" in rest else 1.0
        self._least = params.min_p if "min_p" in rest else 0.0
        self._power = 1.0 / params.temperature if "temperature" in rest and params.temperature > 0 else 1.0
        self._stages = [self._stage(name) for name in self.active if name != "mirostat"]

    @property
    def needs_comparison(self) -> bool:
        """Whether a position's distribution depends on more than the text (see `comparison_note`)."""
        return "xtc" in self.active or "mirostat" in self.active

    def distribution(self, logits: Logits, tokens: Sequence[int], drafted: Sequence[int] = ()) -> Distribution:
        """`logits` has shape (n_vocab,), is not changed, and stands behind the text `tokens` and the draft `drafted`.

        With mirostat it must be asked from left to right within a round: `drafted` grows by one accepted token.
        """
        if self._writes:
            logits = logits.copy()
            biased(logits, self._params.logit_bias)
            if self._suppressed is not None:
                logits[self._suppressed[self._suppressed < len(logits)]] = -np.inf
        if self._is_certain or self._is_classic:
            for penalty in self._looking_back.values():
                penalty.apply(None, logits, tokens, drafted)
            if self._is_certain:
                return Distribution.certain(int(logits.argmax()))
            ids, weights = filters.classic_survivors(logits, self._k, self._share, self._least)
            # Weights are relative to the best before the temperature: exp(x / T) = exp(x) ** (1 / T).
            return Distribution(ids, weights if self._power == 1.0 else weights**self._power)
        candidates = Candidates(None, logits)
        for stage in self._stages:
            candidates = stage(candidates, tokens, drafted)
        if not self._mirostat:
            return candidates.distribution()
        if self._is_for_draft:
            return self._mirostat.glance(candidates)
        return self._mirostat.distribution(candidates, drafted)

    def commit(self, tokens: Sequence[int]) -> None:
        """The round is over: `tokens` are now part of the text, drawn from what was asked since the last round."""
        if self._mirostat:
            self._mirostat.commit(tokens)

    def for_draft(self) -> Sampler:
        """What a draft model draws from: as near to the target's sampling as a draft can be.

        XTC tosses the same coins, and mirostat truncates where the target stands, but learns nothing from a draft.
        """
        if not self._mirostat:
            return self
        draft = copy.copy(self)
        draft._is_for_draft = True  # noqa: SLF001 (its own)
        return draft

    def _penalties(self, spellings: Spellings | None) -> dict[str, RepeatPenalties | Dry]:
        """The samplers that look back and have something to do, in order."""
        params = self._params
        made: dict[str, RepeatPenalties | Dry] = {}
        for name in self.active:
            if name == "penalties":
                made[name] = RepeatPenalties(
                    params.repeat_penalty, params.frequency_penalty, params.presence_penalty, params.repeat_last_n
                )
            elif name == "dry":
                breakers = [tokens for text in params.dry_breakers for tokens in spellings(text)] if spellings else []
                made[name] = Dry(
                    params.dry_multiplier, params.dry_base, params.dry_allowed_length, params.dry_last_n, breakers
                )
        return made

    def _penalties_lead(self) -> bool:
        return all(name in _LOOKING_BACK for name in self.active[: len(self._looking_back)])

    def _stage(self, name: str) -> Stage:
        params = self._params
        match name:
            case "penalties" | "dry":
                return self._look_back(name)
            case "top_n_sigma":
                return lambda candidates, *_: filters.top_n_sigma(candidates, params.top_n_sigma)
            case "top_k":
                return lambda candidates, *_: filters.top_k(candidates, params.top_k)
            case "typical":
                return lambda candidates, *_: filters.typical(candidates, params.typical_p)
            case "top_p":
                return lambda candidates, *_: filters.top_p(candidates, params.top_p)
            case "min_p":
                return lambda candidates, *_: filters.min_p(candidates, params.min_p)
            case "xtc":
                return self._xtc
            case _:
                return lambda candidates, *_: filters.temperature(
                    candidates, params.temperature, params.dynatemp_range, params.dynatemp_exponent
                )

    def _look_back(self, name: str) -> Stage:
        def stage(candidates: Candidates, tokens: Sequence[int], drafted: Sequence[int]) -> Candidates:
            self._looking_back[name].apply(candidates.ids, candidates.logits, tokens, drafted)
            return candidates

        return stage

    def _xtc(self, candidates: Candidates, tokens: Sequence[int], drafted: Sequence[int]) -> Candidates:
        if coin(self._seed, len(tokens) + len(drafted)) > self._params.xtc_probability:
            return candidates
        return filters.without_top_choices(candidates, self._params.xtc_threshold)
