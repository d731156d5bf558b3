"""Vocabularies of given words, and a draft model that writes what it is told to: translation is known by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.engine.protocol import SamplingParams
from app.engine.sampling import Sampler
from app.engine.translation import TextVocabulary, TranslatedDrafter
from tests.support.prompts import ByteVocabulary

GREEDY = SamplingParams(temperature=0)
OPEN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


class WordVocabulary:
    """Given pieces, the longest first; the special ones behind them. `fallback`: every byte is a token as well."""

    def __init__(
        self,
        *words: str,
        special: Sequence[str] = (),
        ends: Sequence[str] = (),
        fallback: bool = False,
        add_bos: bool = False,
    ) -> None:
        self.pieces = [word.encode() for word in words] + ([bytes([i]) for i in range(256)] if fallback else [])
        self.special_texts = {text: len(self.pieces) + i for i, text in enumerate(special)}
        self._names = {token: text for text, token in self.special_texts.items()}
        self.n_tokens = len(self.pieces) + len(special)
        self.add_bos = add_bos
        self.bos = len(self.pieces) if add_bos else None
        self.eos = self.special_texts[ends[0]] if ends else None
        self._ends = {self.special_texts[text] for text in ends}

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data, tokens = text.encode(), []
        while data:
            fitting = [i for i, piece in enumerate(self.pieces) if data.startswith(piece)]
            best = max(fitting, key=lambda i: len(self.pieces[i]))
            tokens.append(best)
            data = data[len(self.pieces[best]) :]
        return tokens

    def piece(self, token: int, *, special: bool = False) -> bytes:
        if token < len(self.pieces):
            return self.pieces[token]
        return self._names[token].encode() if special else b""

    def text_of(self, token: int) -> str:
        return self.piece(token, special=True).decode(errors="replace")

    def is_end(self, token: int) -> bool:
        return token in self._ends


def text_of(vocabulary: TextVocabulary, tokens: Sequence[int]) -> bytes:
    return b"".join(map(vocabulary.piece, tokens))


class Typist:
    """A draft model that writes given tokens behind the bytes `prompt`, and then a control token that means nothing."""

    def __init__(self, vocabulary: WordVocabulary | ByteVocabulary, prompt: bytes, tokens: Sequence[int]) -> None:
        self.size, self.capacity, self.vocabulary_size = 1000, 64, vocabulary.n_tokens
        self.tokens: list[int] = []
        self.busy_s = 0.0
        self.evaluated = 0
        self._vocabulary, self._prompt, self._script = vocabulary, prompt, tokens

    def decode(self, tokens: Sequence[int], outputs: int) -> None:
        assert tokens
        self.tokens += tokens
        self.evaluated += len(tokens)
        self.busy_s += 1.0

    def logits(self, row: int) -> np.ndarray:
        written = len(text_of(self._vocabulary, self.tokens)) - len(self._prompt)
        logits = np.zeros(self.vocabulary_size, dtype=np.float32)
        at = 0
        for token in self._script:
            if at == written:
                logits[token] = 3.0
                return logits
            at += len(self._vocabulary.piece(token))
        specials = self._vocabulary.special_texts.values()
        logits[next(token for token in specials if not self._vocabulary.is_end(token))] = 3.0
        return logits

    def rewind(self, length: int) -> None:
        del self.tokens[length:]

    def clear(self) -> None:
        self.tokens = []


def translated(memory: object, target: object, draft: object, params: SamplingParams = GREEDY) -> TranslatedDrafter:
    return TranslatedDrafter(
        memory,  # type: ignore[arg-type]
        Sampler(params),
        target_vocabulary=target,  # type: ignore[arg-type]
        draft_vocabulary=draft,  # type: ignore[arg-type]
    )


BYTES = ByteVocabulary(ends=["<|im_end|>"], eos="<|im_end|>")
WORDS = WordVocabulary(
    "the", " sea", " light", "house", " lighthouse", "\n", special=["<s>", "</s>"], ends=["</s>"], fallback=True
)
