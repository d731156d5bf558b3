"""llama.cpp's own samplers, one after another on an array of logits: what ours are held against."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from app.engine.llama import L
from app.engine.protocol import SamplingParams


class LlamaChain:
    """The samplers of `params` in their order, as llama.cpp's command line sets them up.

    `vocabulary` is a handle that only DRY with breakers needs. XTC's coin is llama.cpp's: its probability is 0 or 1.
    """

    def __init__(self, params: SamplingParams, n_vocab: int, vocabulary: int | None = None) -> None:
        self._n_vocab = n_vocab
        names = [*(["temperature"] if params.mirostat else params.order)]
        self._samplers = [self._made(name, params, vocabulary) for name in names]
        if params.logit_bias:
            biases = (L.llama_logit_bias * len(params.logit_bias))(*params.logit_bias)
            self._samplers.insert(0, L.llama_sampler_init_logit_bias(n_vocab, len(biases), biases))
        if params.mirostat == 1:
            self._samplers.append(
                L.llama_sampler_init_mirostat(n_vocab, 1, params.mirostat_tau, params.mirostat_eta, 100)
            )
        elif params.mirostat == 2:
            self._samplers.append(L.llama_sampler_init_mirostat_v2(1, params.mirostat_tau, params.mirostat_eta))

    def _made(self, name: str, params: SamplingParams, vocabulary: int | None) -> int:
        match name:
            case "penalties":
                return L.llama_sampler_init_penalties(
                    self._n_vocab,
                    params.repeat_last_n,
                    params.repeat_penalty,
                    params.frequency_penalty,
                    params.presence_penalty,
                )
            case "dry":
                texts = [text.encode() for text in params.dry_breakers] if vocabulary else []
                return L.llama_sampler_init_dry(
                    vocabulary,
                    params.dry_multiplier,
                    params.dry_base,
                    params.dry_allowed_length,
                    params.dry_last_n,
                    (ctypes.c_char_p * len(texts))(*texts),
                    len(texts),
                )
            case "top_n_sigma":
                return L.llama_sampler_init_top_n_sigma(params.top_n_sigma)
            case "top_k":
                return L.llama_sampler_init_top_k(params.top_k)
            case "typical":
                return L.llama_sampler_init_typical(params.typical_p, 0)
            case "top_p":
                return L.llama_sampler_init_top_p(params.top_p, 0)
            case "min_p":
                return L.llama_sampler_init_min_p(params.min_p, 0)
            case "xtc":
                return L.llama_sampler_init_xtc(params.xtc_probability, params.xtc_threshold, 0, 1)
            case "temperature":
                return L.llama_sampler_init_temp_ext(
                    params.temperature, params.dynatemp_range, params.dynatemp_exponent
                )
            case _:
                raise ValueError(name)

    def accept(self, tokens: Sequence[int]) -> None:
        for sampler in self._samplers:
            for token in tokens:
                L.llama_sampler_accept(sampler, token)

    def probs(self, logits: npt.NDArray[np.float32]) -> tuple[dict[int, float], int]:
        """Survivors and their probabilities, and the token that a mirostat has drawn (else -1)."""
        data = (L.llama_token_data * len(logits))(*((i, float(logit), 0.0) for i, logit in enumerate(logits)))
        array = L.llama_token_data_array(data, len(logits), -1, False)
        for sampler in self._samplers:
            L.llama_sampler_apply(sampler, ctypes.byref(array))
        left = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
        best = max(logit for _, logit in left)
        weights = {token: float(np.exp(np.float64(logit) - best)) for token, logit in left if logit > -np.inf}
        total = sum(weights.values())
        drawn = array.data[array.selected].id if array.selected >= 0 else -1
        return {token: weight / total for token, weight in weights.items()}, drawn

    def close(self) -> None:
        for sampler in self._samplers:
            L.llama_sampler_free(sampler)
        self._samplers = []
