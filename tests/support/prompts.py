"""Prompts without a model: a vocabulary of bytes with special tokens, and short ways to write a conversation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.chat import Message, Role
from app.engine.prompt import Prompt, PromptBuilder
from tests.support.chat_templates import CHATML

CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA3_TOKENS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
GEMMA_TOKENS = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
MISTRAL_TOKENS = ("<s>", "</s>", "[INST]", "[/INST]")
PLAIN_TOKENS = ("<unk>", "<s>", "</s>")


class ByteVocabulary:
    """One token a byte, and the special ones behind them. Reads special tokens as llama.cpp does."""

    def __init__(
        self,
        special: Sequence[str] = CHATML_TOKENS,
        *,
        user_defined: Sequence[str] = (),
        bos: str | None = None,
        eos: str | None = None,
        ends: Sequence[str] = (),
        add_bos: bool = False,
        prefixes_space: bool = False,
    ) -> None:
        self.special_texts = {text: 256 + i for i, text in enumerate([*special, *user_defined])}
        self.user_defined_texts = frozenset(user_defined)
        self.bos = None if bos is None else self.special_texts[bos]
        self.eos = None if eos is None else self.special_texts[eos]
        self.add_bos = add_bos
        self.n_tokens = 256 + len(self.special_texts)
        self._texts = {token: text for text, token in self.special_texts.items()}
        self._ends = {self.special_texts[text] for text in ends}
        self._prefixes_space = prefixes_space

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        tokens = [self.bos] if add_special and self.add_bos and self.bos is not None else []
        known = sorted(self.special_texts if parse_special else self.user_defined_texts, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]
        for place, part in enumerate(parts):
            if place % 2:
                tokens.append(self.special_texts[part])
            elif part:
                tokens += (b" " if self._prefixes_space else b"") + part.encode()
        return tokens

    def piece(self, token: int, *, special: bool = False) -> bytes:
        if token < 256:
            return bytes([token])
        return self.text_of(token).encode() if special or self.text_of(token) in self.user_defined_texts else b""

    def text_of(self, token: int) -> str:
        return self._texts[token] if token >= 256 else chr(token)

    def is_end(self, token: int) -> bool:
        return token in self._ends

    def shown(self, tokens: Sequence[int]) -> str:
        """The tokens as text, special ones between ⟦ and ⟧."""
        data = b"".join(bytes([token]) if token < 256 else f"⟦{self.text_of(token)}⟧".encode() for token in tokens)
        return data.decode()


def user(text: str) -> Message:
    return Message.of(Role.user, text)


def answer(text: str, reasoning: str = "") -> Message:
    return Message.of(Role.assistant, text, reasoning)


def system(text: str) -> Message:
    return Message.of(Role.system, text)


def build(
    messages: Sequence[Message],
    template: str | None = CHATML,
    vocabulary: ByteVocabulary | None = None,
    *,
    architecture: str = "llama",
    context: int = 100_000,
    max_tokens: int | None = None,
) -> tuple[Prompt, str]:
    vocabulary = vocabulary or ByteVocabulary()
    prompt = PromptBuilder(vocabulary, template, architecture, context=context).build(messages, max_tokens=max_tokens)
    return prompt, vocabulary.shown(prompt.tokens)
