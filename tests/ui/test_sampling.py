"""The sampling of a request: what the user chose, else what the model suggests, else the usual."""

from __future__ import annotations

from dataclasses import fields

import msgspec
import pytest

from app.engine.limits import validate
from app.engine.protocol import SAMPLERS, GenerationRequest, SamplingParams
from app.storage.settings import Settings
from app.ui.sampling import bias_of, bias_text, complete, sampling_of
from app.ui.settings.figures import COMMON, MORE, Figure
from app.ui.settings.order import TITLES


def test_a_choice_goes_before_a_suggestion_and_that_before_the_usual() -> None:
    suggested = {"temperature": 0.6, "top_k": 20.0}
    params = sampling_of(Settings(temperature=0.2, seed=7), suggested)
    assert params == SamplingParams(temperature=0.2, top_k=20, seed=7)
    assert isinstance(params.top_k, int)
    assert sampling_of(Settings(), {}) == SamplingParams()


def test_a_choice_of_zero_is_a_choice() -> None:
    assert sampling_of(Settings(temperature=0.0, top_k=0), {"temperature": 0.6, "top_k": 20}).temperature == 0.0


def test_lists_become_what_the_engine_takes() -> None:
    params = sampling_of(Settings(order=["temperature", "top_k", "from_the_future"], logit_bias=[(2, 1.5)]), {})
    assert params.order[:2] == ("temperature", "top_k")
    assert sorted(params.order) == sorted(SAMPLERS)
    assert params.logit_bias == ((2, 1.5),)
    validate(GenerationRequest((), params))


def test_an_order_names_each_sampler_once() -> None:
    assert complete(SAMPLERS) == SAMPLERS
    assert complete(["xtc", "xtc", "nonsense", "dry"])[:3] == ("xtc", "dry", "penalties")
    assert set(TITLES) == set(SAMPLERS)


def test_every_sampling_setting_is_one_of_the_engine_and_has_a_control() -> None:
    names = {f.name for f in fields(SamplingParams)} & {f.name for f in fields(Settings)}
    assert {figure.name for figure in (*COMMON, *MORE)} == names - {"seed", "order", "logit_bias"}


@pytest.mark.parametrize("figure", [*COMMON, *MORE], ids=lambda figure: figure.name)
def test_what_a_control_offers_can_be_stored_and_asked_for(figure: Figure) -> None:
    kind = type(getattr(SamplingParams(), figure.name))
    for value in (figure.low, figure.high, *([] if figure.off is None else [figure.off])):
        settings = msgspec.convert({figure.name: kind(value)}, Settings)
        validate(GenerationRequest((), sampling_of(settings, {})))
    assert figure.low <= getattr(SamplingParams(), figure.name) <= figure.high
    if figure.decimals == 0 and figure.off is not None:
        assert figure.off == figure.low, "the box can only call its lowest value off"


def test_a_bias_is_read_and_written() -> None:
    assert bias_of(" 198=-5, 2 = 1.5,") == [(198, -5.0), (2, 1.5)]
    assert bias_of("") == []
    assert bias_of("7=1, 7=2") == [(7, 2.0)]
    assert bias_text(bias_of("198=-5,2=1.5")) == "198=-5, 2=1.5"


@pytest.mark.parametrize("part", ["abc", "7", "7=", "=3", "-7=3", "7=x", "7=1e9", "7=nan", "1.5=2"])
def test_a_bias_that_cannot_be_read_is_named(part: str) -> None:
    with pytest.raises(ValueError, match="no token id and bias") as caught:
        bias_of(f"3=1, {part}")
    assert f"“{part}”" in str(caught.value)
