"""May this draft serve this target: with its tokens, with its text, or not at all, and the reason in words."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

import pytest

from app.engine.llama import Library
from app.engine.model import Model
from app.engine.pair import check
from tests.support.models import Models


@dataclass
class Vocabulary:
    texts: list[bytes] = field(default_factory=lambda: [f"t{i}".encode() for i in range(300)])
    type: int = 2
    bos: int | None = 1
    eos: int | None = 2
    add_bos: bool = True
    add_eos: bool = False
    spells: bool = True  # else capitals are lost, as with WordPiece

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode() if self.spells else text.lower().encode()
        return [-1 - byte for byte in data]  # beside the ids that are compared

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return bytes([-1 - token]) if token < 0 else self.texts[token]

    @property
    def n_tokens(self) -> int:
        return len(self.texts)


TARGET = Vocabulary()


def changed(token: int, text: bytes) -> list[bytes]:
    texts = list(TARGET.texts)
    texts[token] = text
    return texts


def test_equal_vocabularies_fit() -> None:
    verdict = check(TARGET, Vocabulary())
    assert verdict.fits
    assert not verdict.translates
    assert verdict.reason == "They fit: both use the same 300 tokens."


@pytest.mark.parametrize("padding", [1, 128])
@pytest.mark.parametrize("larger", ["target", "draft"])
def test_padding_of_one_family_fits_and_is_named(padding: int, larger: str) -> None:
    padded = Vocabulary([*TARGET.texts, *(b"[PAD%d]" % i for i in range(padding))])
    verdict = check(padded, TARGET) if larger == "target" else check(TARGET, padded)
    assert verdict.fits
    assert not verdict.translates
    assert str(padding) in verdict.reason


@pytest.mark.parametrize("token", [0, 4])
def test_the_first_ids_are_not_compared(token: int) -> None:
    assert not check(TARGET, Vocabulary(changed(token, b"other"))).translates


@pytest.mark.parametrize("token", [5, 123, 299])
def test_the_first_different_token_is_named_with_both_texts(token: int) -> None:
    verdict = check(TARGET, Vocabulary(changed(token, b"other")))
    assert verdict.fits
    assert verdict.translates
    assert verdict.first_difference == token
    assert verdict.reason == (
        f"This draft speaks another vocabulary: token {token} is “t{token}” for the target and “other” for the draft. "
        "It drafts text that is tokenised again; that is exact, and somewhat slower."
    )


@pytest.mark.parametrize(
    ("draft", "named"),
    [
        (replace(TARGET, texts=TARGET.texts[:100]), "300 tokens"),
        (replace(TARGET, texts=TARGET.texts * 2), "600"),
        (replace(TARGET, type=1), "SentencePiece"),
        (replace(TARGET, add_bos=False), "start"),
        (replace(TARGET, bos=7), "token 1"),
        (replace(TARGET, add_eos=True), "end"),
    ],
)
def test_other_differences_are_named_and_translated(draft: Vocabulary, named: str) -> None:
    verdict = check(TARGET, draft)
    assert verdict.fits
    assert verdict.translates
    assert named in verdict.reason
    assert "exact, and somewhat slower" in verdict.reason


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(
    "unable", [replace(TARGET, type=0), replace(TARGET, texts=[]), replace(TARGET, type=3, spells=False)]
)
def test_a_vocabulary_that_cannot_spell_a_text_is_refused_by_role(unable: Vocabulary, role: str) -> None:
    verdict = check(unable, TARGET) if role == "target" else check(TARGET, unable)
    assert not verdict.fits
    assert not verdict.translates
    assert f"the {role}'s tokens cannot spell a text exactly" in verdict.reason
    assert verdict.reason.endswith("Choose a draft of the same model family.")


def test_an_end_token_that_nobody_adds_does_not_matter() -> None:
    assert not check(TARGET, replace(TARGET, eos=99)).translates


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        ("tiny-other", "token 49000 is “"),
        ("tiny-small", "the target has 49,152 tokens, the draft 512"),
        ("tiny-152k", "the target has 49,152 tokens, the draft 151,936"),
    ],
)
def test_real_vocabularies_are_translated(models: Models, draft: str, reason: str) -> None:
    library = Library()
    with (
        contextlib.closing(Model(library, models.path("tiny-same"), vocab_only=True)) as target,
        contextlib.closing(Model(library, models.path(draft), vocab_only=True)) as other,
    ):
        verdict = check(target.vocabulary, other.vocabulary)
    assert verdict.fits
    assert verdict.translates
    assert reason in verdict.reason


def test_invalid_text_is_shown_without_failing() -> None:
    assert "“" in check(TARGET, Vocabulary(changed(9, b"\xff\xfe"))).reason
