"""May this draft serve this target: with its tokens, with its text, or not at all. With the reason in words.

With the same vocabulary (llama.cpp's rule for speculative decoding) the draft's tokens are the target's; with another
one `app.engine.translation` translates. Only a vocabulary that cannot repeat a text refuses. The answer is exact in
each case: whatever a draft proposes, the target decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_SIZE_DIFFERENCE = 128  # padding of embedding rows differs between sizes of one family
FIRST_COMPARED_TOKEN = 5  # the first ids are placeholders in many vocabularies

_NO_VOCABULARY = 0
_TYPE_NAMES = {1: "SentencePiece", 2: "byte pairs", 3: "WordPiece", 4: "unigrams", 5: "RWKV", 6: "PLaMo"}
_SAMPLE = "The Sea, 12 ships;\nx == 1."  # capitals, marks, spaces and a newline: some tokenizers do not keep them


class PairVocabulary(Protocol):
    type: int
    n_tokens: int
    bos: int | None
    eos: int | None
    add_bos: bool
    add_eos: bool

    @property
    def texts(self) -> Sequence[bytes]: ...
    def piece(self, token: int, *, special: bool = False) -> bytes: ...
    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...


@dataclass(frozen=True)
class Verdict:
    """`translates`: the draft fits, but with text instead of tokens."""

    fits: bool
    reason: str  # a sentence, in any case
    translates: bool = False
    first_difference: int | None = None  # token id


def check(target: PairVocabulary, draft: PairVocabulary) -> Verdict:
    """Compare two vocabularies. The reason names the first difference found."""
    difference = _first_difference(target, draft)
    if difference is None:
        shared = min(target.n_tokens, draft.n_tokens)
        padding = abs(target.n_tokens - draft.n_tokens)
        padded = f" ({padding} padded ids aside)" if padding else ""
        return Verdict(True, f"They fit: both use the same {shared:,} tokens{padded}.")
    how, token = difference
    for role, vocabulary in (("target", target), ("draft", draft)):
        if not _repeats_text(vocabulary):
            reason = (
                f"This draft cannot serve this target: {how}, and the {role}'s tokens cannot spell a text exactly, so "
                "that drafts cannot be translated either. Choose a draft of the same model family."
            )
            return Verdict(False, reason, first_difference=token)
    return Verdict(
        True,
        f"This draft speaks another vocabulary: {how}. It drafts text that is tokenised again; that is exact, and "
        "somewhat slower.",
        translates=True,
        first_difference=token,
    )


def _first_difference(target: PairVocabulary, draft: PairVocabulary) -> tuple[str, int | None] | None:
    """Why the ids of one are not those of the other, in words, and the token id that shows it."""
    if target.type != draft.type:
        return f"the target splits text by {_name(target)}, the draft by {_name(draft)}", None
    for word, adds, name in (("start", "add_bos", "bos"), ("end", "add_eos", "eos")):
        if getattr(target, adds) != getattr(draft, adds):
            one, other = ("target", "draft") if getattr(target, adds) else ("draft", "target")
            return f"the {one} adds a token at the {word} of a text and the {other} does not", None
        if getattr(target, adds) and getattr(target, name) != getattr(draft, name):
            how = (
                f"the target marks the {word} of a text with token {getattr(target, name)}, "
                f"the draft with {getattr(draft, name)}"
            )
            return how, None
    if abs(target.n_tokens - draft.n_tokens) > MAX_SIZE_DIFFERENCE:
        return f"the target has {target.n_tokens:,} tokens, the draft {draft.n_tokens:,}", None
    shared = min(target.n_tokens, draft.n_tokens)
    ours, theirs = target.texts[FIRST_COMPARED_TOKEN:shared], draft.texts[FIRST_COMPARED_TOKEN:shared]
    if ours == theirs:
        return None
    at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    token = at + FIRST_COMPARED_TOKEN
    return f"token {token} is {_shown(target, token)} for the target and {_shown(draft, token)} for the draft", token


def _repeats_text(vocabulary: PairVocabulary) -> bool:
    """Whether a text comes back from its tokens: WordPiece, for one, loses capitals and spaces."""
    if vocabulary.type == _NO_VOCABULARY or not vocabulary.n_tokens:
        return False  # to be asked would end the process
    tokens = vocabulary.tokenize(_SAMPLE, add_special=False, parse_special=False)
    text = b"".join(map(vocabulary.piece, tokens))
    return text.removeprefix(b" ") == _SAMPLE.encode()  # SentencePiece puts a space before


def _name(vocabulary: PairVocabulary) -> str:
    if vocabulary.type == _NO_VOCABULARY:
        return "no tokenizer that is in its file"
    return _TYPE_NAMES.get(vocabulary.type, f"method {vocabulary.type}")


def _shown(vocabulary: PairVocabulary, token: int) -> str:
    """The token as it stands in a text, not in the spelling of its vocabulary."""
    return f"“{vocabulary.piece(token, special=True).decode(errors='replace')}”"
