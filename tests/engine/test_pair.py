"""llama.cpp's compatibility rule, with the reason in words."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from app.engine.pair import check


@dataclass
class Vocabulary:
    texts: list[bytes] = field(default_factory=lambda: [f"t{i}".encode() for i in range(300)])
    type: int = 2
    bos: int | None = 1
    eos: int | None = 2
    add_bos: bool = True
    add_eos: bool = False

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return self.texts[token]

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
    assert "300 tokens" in verdict.reason


@pytest.mark.parametrize("padding", [1, 128])
@pytest.mark.parametrize("larger", ["target", "draft"])
def test_padding_of_one_family_fits_and_is_named(padding: int, larger: str) -> None:
    padded = Vocabulary([*TARGET.texts, *(b"[PAD%d]" % i for i in range(padding))])
    verdict = check(padded, TARGET) if larger == "target" else check(TARGET, padded)
    assert verdict.fits
    assert str(padding) in verdict.reason


@pytest.mark.parametrize("token", [0, 4])
def test_the_first_ids_are_not_compared(token: int) -> None:
    assert check(TARGET, Vocabulary(changed(token, b"other"))).fits


@pytest.mark.parametrize("token", [5, 123, 299])
def test_the_first_different_token_is_named_with_both_texts(token: int) -> None:
    verdict = check(TARGET, Vocabulary(changed(token, b"other")))
    assert not verdict.fits
    assert verdict.first_difference == token
    assert f"token {token} " in verdict.reason
    assert f"“t{token}”" in verdict.reason
    assert "“other”" in verdict.reason


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
def test_other_differences_are_named(draft: Vocabulary, named: str) -> None:
    verdict = check(TARGET, draft)
    assert not verdict.fits
    assert named in verdict.reason
    assert verdict.reason.endswith("Choose a draft of the same model family.")


def test_an_end_token_that_nobody_adds_does_not_matter() -> None:
    assert check(TARGET, replace(TARGET, eos=99)).fits


def test_invalid_text_is_shown_without_failing() -> None:
    assert "“" in check(TARGET, Vocabulary(changed(9, b"\xff\xfe"))).reason
