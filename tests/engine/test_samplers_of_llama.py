"""Every sampler against llama.cpp's own: the same survivors with the same probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from app.engine.llama import Library
from app.engine.model import Model
from app.engine.protocol import SAMPLERS, SamplingParams
from app.engine.sampling import Distribution, Sampler
from tests.support.llama_chain import LlamaChain
from tests.support.models import Models

OPEN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
N_VOCAB = 700
TEXT = [5, 9, 5, 6, 7, 300, 5, 6, 7, 8, 2, 699, 5, 6, 7]  # 8 and 300 would go on with repetitions

SETTINGS = {
    "top-k": {"top_k": 17},
    "top-p": {"top_p": 0.8},
    "top-p of nearly all": {"top_p": 0.999},
    "min-p": {"min_p": 0.03},
    "typical": {"typical_p": 0.6},
    "typical of nearly all": {"typical_p": 0.99},
    "top-n-sigma": {"top_n_sigma": 1.2},
    "temperature": {"temperature": 0.6},
    "dynamic temperature": {"temperature": 0.9, "dynatemp_range": 0.5, "dynatemp_exponent": 1.4},
    "dynamic temperature from 0": {"temperature": 0.2, "dynatemp_range": 0.7},
    "XTC": {"xtc_probability": 1.0, "xtc_threshold": 0.02},
    "XTC without a second choice": {"xtc_probability": 1.0, "xtc_threshold": 0.45},
    "XTC behind top-k": {"top_k": 5, "xtc_probability": 1.0, "xtc_threshold": 0.15},
    "repeat penalty": {"repeat_penalty": 1.4},
    "frequency and presence": {"frequency_penalty": 0.4, "presence_penalty": 0.7},
    "all penalties": {"repeat_penalty": 0.8, "frequency_penalty": -0.2, "presence_penalty": 0.7, "repeat_last_n": 7},
    "DRY": {"dry_multiplier": 0.8},
    "DRY of everything": {"dry_multiplier": 0.5, "dry_base": 1.1, "dry_allowed_length": 0},
    "DRY in a short window": {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_last_n": 9},
    "logit bias": {"logit_bias": ((3, 4.0), (6, -2.5), (699, 1.0))},
    "the default order": {
        "repeat_penalty": 1.1, "dry_multiplier": 0.8, "top_n_sigma": 2.0, "top_k": 50, "top_p": 0.9, "min_p": 0.02,
        "xtc_probability": 1.0, "xtc_threshold": 0.05, "temperature": 0.8,
    },
}  # fmt: skip


def random_logits(seed: int, n_vocab: int = N_VOCAB, spread: float = 2.5) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(scale=spread, size=n_vocab).astype(np.float32)


@contextmanager
def llama(params: SamplingParams, n_vocab: int = N_VOCAB, vocabulary: int | None = None) -> Iterator[LlamaChain]:
    chain = LlamaChain(params, n_vocab, vocabulary)
    try:
        yield chain
    finally:
        chain.close()


def probs_of(distribution: Distribution) -> dict[int, float]:
    return dict(zip(distribution.ids.tolist(), distribution.probs.tolist(), strict=True))


def assert_alike(found: Distribution, wanted: dict[int, float]) -> None:
    # What single precision cannot tell from 0 is no survivor of anyone's.
    got = {token: p for token, p in probs_of(found).items() if p > 1e-9}
    wanted = {token: p for token, p in wanted.items() if p > 1e-9}
    assert got.keys() == wanted.keys()
    assert got == pytest.approx(wanted, rel=2e-4)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(6))
def test_each_sampler_is_llama_cpps(setting: str, seed: int) -> None:
    params = replace(OPEN, **SETTINGS[setting])
    logits = random_logits(seed)
    with llama(params) as chain:
        chain.accept(TEXT)
        wanted, _ = chain.probs(logits)
    found = Sampler(params).distribution(logits, TEXT)
    assert_alike(found, wanted)
    is_changed = probs_of(found) != pytest.approx(probs_of(Sampler(OPEN).distribution(logits, TEXT)))
    assert is_changed == (setting != "XTC without a second choice")


@pytest.mark.parametrize("seed", range(60))
def test_any_order_is_llama_cpps(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    order = tuple(rng.permutation(SAMPLERS).tolist())[: rng.integers(3, len(SAMPLERS) + 1)]
    params = SamplingParams(
        temperature=float(rng.uniform(0.3, 1.8)),
        dynatemp_range=float(rng.choice([0.0, 0.25])),
        top_k=int(rng.integers(5, 300)),
        top_p=float(rng.uniform(0.6, 0.99)),
        min_p=float(rng.uniform(0.001, 0.05)),
        typical_p=float(rng.uniform(0.6, 0.99)),
        # llama.cpp's typical-p has no entropy for what top-n-sigma has put out: 0 times the logarithm of 0.
        top_n_sigma=float(rng.uniform(1.0, 3.0)) if "typical" not in order else 0.0,
        xtc_probability=float(rng.integers(0, 2)),
        xtc_threshold=float(rng.uniform(0.01, 0.2)),
        repeat_penalty=float(rng.uniform(0.8, 1.5)),
        frequency_penalty=float(rng.uniform(-0.3, 0.6)),
        presence_penalty=float(rng.uniform(-0.3, 0.6)),
        dry_multiplier=float(rng.uniform(0.1, 1.5)),
        logit_bias=((5, 1.5), (8, -0.5)),
        order=order,
    )
    logits = random_logits(seed)
    with llama(params) as chain:
        chain.accept(TEXT)
        wanted, _ = chain.probs(logits)
    assert_alike(Sampler(params).distribution(logits, TEXT[:9], TEXT[9:]), wanted)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [1.0, 3.0, 6.0])
def test_mirostat_follows_llama_cpps_draws(version: int, tau: float) -> None:
    params = replace(OPEN, temperature=0.9, mirostat=version, mirostat_tau=tau, mirostat_eta=0.3)
    sampler, text = Sampler(params), list(TEXT)
    sizes = set()
    with llama(params) as chain:
        for seed in range(40):
            logits = random_logits(seed)
            wanted, drawn = chain.probs(logits)
            found = sampler.distribution(logits, text)
            assert_alike(found, wanted)
            sizes.add(len(found.ids))
            sampler.commit([drawn])
            text.append(drawn)
    assert len(sizes) > 3  # the limit moved


@pytest.mark.parametrize("seed", range(12))
def test_long_repetitions_are_llama_cpps(seed: int) -> None:
    """Few distinct tokens, so that copies are long and many."""
    rng = np.random.default_rng(seed)
    text = rng.integers(0, 2 + seed % 3, size=300).tolist()
    if seed % 2:
        text = (text[:7] * 60)[: 200 + seed]
    params = replace(OPEN, dry_multiplier=0.01, dry_base=1.05, dry_allowed_length=2, dry_last_n=150 + 20 * seed)
    logits = random_logits(seed, n_vocab=8)
    with llama(params, n_vocab=8) as chain:
        chain.accept(text)
        wanted, _ = chain.probs(logits)
    assert_alike(Sampler(params).distribution(logits, text), wanted)


def test_dry_stops_at_breakers_as_llama_cpp_does(models: Models) -> None:
    breakers = ("\n", "lighthouse keeper", "ing", "»")
    text = (
        "A lighthouse keeper counts. He is counting\nA lighthouse keeper counts. He is » counting\nA lighthouse keeper"
    )
    model = Model(Library(), models.path("smol-q4"), gpu_layers=0, vocab_only=True)
    try:
        vocabulary = model.vocabulary
        tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)
        logits = random_logits(3, vocabulary.n_tokens, spread=1.0)
        params = replace(OPEN, top_k=0, dry_multiplier=3.0, dry_allowed_length=1, dry_breakers=breakers)
        for end in range(3, len(tokens) + 1):
            with llama(params, vocabulary.n_tokens, vocabulary._handle) as chain:
                chain.accept(tokens[:end])
                wanted, _ = chain.probs(logits)
            assert_alike(Sampler(params, spellings=vocabulary.spellings).distribution(logits, tokens[:end]), wanted)
    finally:
        model.close()
