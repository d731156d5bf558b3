"""May this draft serve this target? llama.cpp's rule for speculative decoding, with the reason in words.

The rule protects speed, not exactness: whatever a draft proposes, the target decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_SIZE_DIFFERENCE = 128  # padding of embedding rows differs between sizes of one family
FIRST_COMPARED_TOKEN = 5  # the first ids are placeholders in many vocabularies

_TYPE_NAMES = {1: "SentencePiece", 2: "byte pairs", 3: "WordPiece", 4: "unigrams", 5: "RWKV", 6: "PLaMo"}


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


@dataclass(frozen=True)
class Verdict:
    fits: bool
    reason: str  # a sentence, in either case
    first_difference: int | None = None  # token id


def check(target: PairVocabulary, draft: PairVocabulary) -> Verdict:
    """Compare two vocabularies. The reason names the first difference found."""
    if target.type != draft.type:
        return _differs(f"the target splits text by {_name(target)}, the draft by {_name(draft)}")
    for word, adds, name in (("start", "add_bos", "bos"), ("end", "add_eos", "eos")):
        if getattr(target, adds) != getattr(draft, adds):
            one, other = ("target", "draft") if getattr(target, adds) else ("draft", "target")
            return _differs(f"the {one} adds a token at the {word} of a text and the {other} does not")
        if getattr(target, adds) and getattr(target, name) != getattr(draft, name):
            return _differs(
                f"the target marks the {word} of a text with token {getattr(target, name)}, "
                f"the draft with {getattr(draft, name)}"
            )
    difference = abs(target.n_tokens - draft.n_tokens)
    if difference > MAX_SIZE_DIFFERENCE:
        return _differs(f"the target has {target.n_tokens:,} tokens, the draft {draft.n_tokens:,}")
    shared = min(target.n_tokens, draft.n_tokens)
    ours, theirs = target.texts[FIRST_COMPARED_TOKEN:shared], draft.texts[FIRST_COMPARED_TOKEN:shared]
    if ours != theirs:
        at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        token = at + FIRST_COMPARED_TOKEN
        return _differs(
            f"token {token} is {_shown(target, token)} for the target and {_shown(draft, token)} for the draft", token
        )
    padded = f" ({difference} padded ids aside)" if difference else ""
    return Verdict(True, f"They fit: both use the same {shared:,} tokens{padded}.")


def _differs(how: str, token: int | None = None) -> Verdict:
    return Verdict(
        False, f"This draft cannot serve this target: {how}. Choose a draft of the same model family.", token
    )


def _name(vocabulary: PairVocabulary) -> str:
    return _TYPE_NAMES.get(vocabulary.type, f"method {vocabulary.type}")


def _shown(vocabulary: PairVocabulary, token: int) -> str:
    """The token as it stands in a text, not in the spelling of its vocabulary."""
    return f"“{vocabulary.piece(token, special=True).decode(errors='replace')}”"
