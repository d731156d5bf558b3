"""The options of sampling: what was chosen, what is left to the model, and what is refused in words."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.cli.sampling_options import add_sampling, chosen_sampling
from app.engine.limits import RANGES
from app.engine.protocol import SamplingParams
from app.engine.suggested import sampling_of


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_sampling(parser.add_argument_group("sampling"))
    return parser.parse_args(arguments)


def test_nothing_is_chosen_unless_it_is_given() -> None:
    assert chosen_sampling(parsed([])) == {}


@pytest.mark.parametrize("field", RANGES)
def test_every_setting_has_its_option(field: str) -> None:
    value = RANGES[field].high if field != "seed" else 7
    chosen = chosen_sampling(parsed([f"--{field.replace('_', '-')}", str(value)]))
    assert chosen == {field: value}
    assert sampling_of({}, chosen) == replace(SamplingParams(), **chosen)


@pytest.mark.parametrize("field", RANGES)
@pytest.mark.parametrize("text", ["-200", "1e99", "nan", "much"])
def test_every_option_names_its_range(field: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed([f"--{field.replace('_', '-')}={text}"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert text in said and str(RANGES[field]) in said


def test_lists_are_taken_apart() -> None:
    chosen = chosen_sampling(
        parsed(
            [
                "--logit-bias",
                "198=-5",
                "--logit-bias",
                "2=1.5",
                "--samplers",
                "top_k, temperature",
                "--dry-breaker",
                "\n",
            ]
        )
    )
    assert chosen == {
        "logit_bias": ((198, -5.0), (2, 1.5)),
        "order": ("top_k", "temperature"),
        "dry_breakers": ("\n",),
    }


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--samplers", "top_k,top_q"], "'top_q'"),
        (["--samplers", "top_k,top_k"], "twice"),
        (["--logit-bias", "198"], "198=-5"),
        (["--logit-bias=-1=2"], "'-1=2'"),
        (["--logit-bias", "3=5000"], "1000"),
        (["--logit-bias", "x=1"], "'x=1'"),
    ],
)
def test_lists_that_make_no_sense_are_refused(
    arguments: Sequence[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(arguments)
    assert named in capsys.readouterr().err
