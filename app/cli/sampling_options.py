"""The options of sampling. One that is not given leaves the choice to the model's file, and else to our defaults."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from app.engine.limits import MOST_BIAS, RANGES, check_order
from app.engine.protocol import SAMPLERS, SamplingParams
from app.errors import UsageError


class _Option(NamedTuple):
    field: str  # of SamplingParams; the option is its name with dashes
    metavar: str
    help: str


_OPTIONS = (
    _Option("temperature", "T", "0 is greedy"),
    _Option("top_k", "K", "keep the K best; 0 is off"),
    _Option("top_p", "P", "keep the best that hold P of the probability; 1 is off"),
    _Option("min_p", "P", "keep what has P of the best's probability; 0 is off"),
    _Option("typical_p", "P", "keep what surprises as expected, up to P of the probability; 1 is off"),
    _Option("top_n_sigma", "N", "keep what is within N standard deviations of the best; 0 is off"),
    _Option("dynatemp_range", "R", "let the temperature follow the entropy by R up and down; 0 is off"),
    _Option("dynatemp_exponent", "E", "how the entropy bends that temperature"),
    _Option("repeat_penalty", "R", "for tokens that occurred; 1 is off"),
    _Option("frequency_penalty", "F", "for each time a token occurred; 0 is off"),
    _Option("presence_penalty", "F", "once for each token that occurred; 0 is off"),
    _Option("repeat_last_n", "N", "tokens that these three look back on"),
    _Option("dry_multiplier", "M", "penalty for going on with a repetition (DRY); 0 is off"),
    _Option("dry_base", "B", "DRY's growth with each repeated token"),
    _Option("dry_allowed_length", "N", "tokens a repetition may have for nothing"),
    _Option("dry_last_n", "N", "tokens that DRY looks back on"),
    _Option("xtc_probability", "P", "chance to leave out the top choices but the last (XTC); 0 is off"),
    _Option("xtc_threshold", "P", "what counts as a top choice; above 0.5 is off"),
    _Option("mirostat", "0|1|2", "keep the surprise steady, instead of the filters above; 0 is off"),
    _Option("mirostat_tau", "BITS", "the surprise to keep to"),
    _Option("mirostat_eta", "RATE", "how fast it is kept to"),
)


def add_sampling(group: argparse._ArgumentGroup) -> None:
    ours = SamplingParams()
    for option in _OPTIONS:
        group.add_argument(
            f"--{option.field.replace('_', '-')}",
            type=_within(option.field),
            metavar=option.metavar,
            help=f"{option.help} (the model's, else {getattr(ours, option.field):g})",
        )
    group.add_argument(
        "--dry-breaker",
        action="append",
        metavar="TEXT",
        help="no repetition reaches back over it; repeatable (a newline, colon, quotation mark and asterisk)",
    )
    group.add_argument(
        "--logit-bias",
        action="append",
        type=_bias,
        metavar="ID=BIAS",
        help=f"add BIAS to the logit of token ID, {-MOST_BIAS:g} to {MOST_BIAS:g}; repeatable",
    )
    group.add_argument(
        "--samplers", type=_samplers, metavar="A,B,C", help=f"which samplers, in which order ({','.join(SAMPLERS)})"
    )
    group.add_argument("--seed", type=_within("seed"), metavar="S", help="a fresh one unless given")


def chosen_sampling(options: argparse.Namespace) -> dict[str, Any]:
    """What was given, by the names of SamplingParams."""
    chosen = {option.field: getattr(options, option.field) for option in _OPTIONS}
    chosen |= {
        "seed": options.seed,
        "order": options.samplers,
        "logit_bias": tuple(options.logit_bias) if options.logit_bias else None,
        "dry_breakers": tuple(options.dry_breaker) if options.dry_breaker else None,
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _within(field: str) -> Callable[[str], float]:
    limits = RANGES[field]

    def parse(text: str) -> float:
        with contextlib.suppress(ValueError):
            value = int(text) if limits.is_whole else float(text)
            if limits.holds(value):
                return value
        kind = "whole number" if limits.is_whole else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is no {kind} {limits}")

    return parse


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    with contextlib.suppress(ValueError):
        pair = int(token), float(bias)
        if pair[0] >= 0 and abs(pair[1]) <= MOST_BIAS:
            return pair
    raise argparse.ArgumentTypeError(
        f"{text!r} is no token id with a bias between {-MOST_BIAS:g} and {MOST_BIAS:g}; write for example 198=-5"
    )


def _samplers(text: str) -> tuple[str, ...]:
    order = tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        check_order(order)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return order
