"""Drafts of another vocabulary: what is proposed is the text the draft wrote, and what is settled of it stays."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.llama import Library
from app.engine.model import Model
from app.engine.pacing import FixedPacing
from app.engine.verify import Draft
from app.errors import SlipstreamError
from tests.support.models import Models
from tests.support.prompts import ByteVocabulary
from tests.support.tables import TableMemory, random_table
from tests.support.words import BYTES, OPEN, WORDS, Typist, WordVocabulary, text_of, translated


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


def drafted(
    target: WordVocabulary | ByteVocabulary,
    draft: WordVocabulary | ByteVocabulary,
    text: Sequence[int],
    script: Sequence[int],
    length: int = 8,
    read: bytes | None = None,
) -> Draft:
    """What is proposed behind `text`, when the draft, having read `read`, writes the tokens of `script`."""
    memory = Typist(draft, text_of(target, text) if read is None else read, script)
    drafter = translated(memory, target, draft)
    drafter.begin(text)
    return drafter.draft(FixedPacing(length).begin(length))


def word(text: str) -> int:
    return WORDS.pieces.index(text.encode())


def byte_tokens(text: str) -> list[int]:
    """Single-byte tokens of WORDS."""
    return [WORDS.pieces.index(bytes([byte])) for byte in text.encode()]


# -- what is proposed ---------------------------------------------------------------------------------------------


def test_a_word_is_drafted_as_bytes() -> None:
    draft = drafted(BYTES, WORDS, list(b"the"), [word(" sea")])
    assert draft.tokens == list(b" sea")
    assert [d.probability(t) for d, t in zip(draft.probs, draft.tokens, strict=True)] == [1.0] * 4
    assert len(draft.steps) >= 1


def test_bytes_are_drafted_as_words() -> None:
    draft = drafted(WORDS, BYTES, [word("the")], list(b" sea house"), length=10)
    assert draft.tokens == [word(" sea"), *byte_tokens(" "), word("house")]


def test_a_target_token_may_need_several_draft_tokens_and_their_confidences() -> None:
    confident = _Confident(BYTES, b"the", b" sea the", [0.9, 0.8, 0.7, 0.6, 0.5, 1.0, 1.0, 1.0])
    drafter = translated(confident, WORDS, BYTES, OPEN)
    drafter.begin([word("the")])
    draft = drafter.draft(_Telling())
    assert draft.tokens == [word(" sea"), *byte_tokens(" "), word("the")]
    assert draft.confidences == pytest.approx([0.9 * 0.8 * 0.7 * 0.6, 0.5, 1.0], rel=1e-5)


def test_a_draft_token_counts_once_for_the_target_tokens_it_spans() -> None:
    confident = _Confident(WORDS, b"the", b" sea", [0.6])
    drafter = translated(confident, BYTES, WORDS, OPEN)
    drafter.begin(list(b"the"))
    draft = drafter.draft(_Telling())
    assert draft.tokens == list(b" sea")
    assert draft.confidences == pytest.approx([0.6, 1.0, 1.0, 1.0], rel=1e-5)


class _Telling:
    """A pace that wants everything, confidences included."""

    limit = 8
    needs_confidence = True

    def goes_on(self, kind: object, pending: int) -> bool:
        assert pending >= 1
        return True

    def takes(self, kind: object, confidence: float) -> bool:
        return confidence > 0.4  # what comes behind the script is unsure

    def cut(self, kind: object, confidences: Sequence[float], rival: int | None = None) -> int:
        return len(confidences)


class _Confident(Typist):
    """Writes a text with given probabilities of its tokens, and then knows nothing."""

    def __init__(
        self, vocabulary: WordVocabulary | ByteVocabulary, prompt: bytes, text: bytes, sure: list[float]
    ) -> None:
        script = vocabulary.tokenize(text.decode(), add_special=False, parse_special=False)
        super().__init__(vocabulary, prompt, script)
        self._sure = sure

    def logits(self, row: int) -> np.ndarray:
        wanted = super().logits(row)
        at = len(self._vocabulary.tokenize(self._rest(), add_special=False, parse_special=False))
        if at == len(self._sure):
            return np.zeros_like(wanted)
        sure = min(self._sure[at], 1 - 1e-9)
        odds = np.log(sure / (1 - sure) * (self.vocabulary_size - 1))
        return np.where(wanted > 0, odds, 0.0).astype(np.float32)

    def _rest(self) -> str:
        return text_of(self._vocabulary, self.tokens)[len(self._prompt) :].decode()


@pytest.mark.parametrize("length", [1, 2, 3])
def test_never_more_than_the_limit_in_target_tokens(length: int) -> None:
    assert len(drafted(BYTES, WORDS, list(b"the"), [word(" lighthouse")] * 4, length)) == length


def test_a_word_that_grows_while_it_is_drafted_is_one_token() -> None:
    draft = drafted(WORDS, WORDS, [word("the")], [word(" light"), word("house"), word(" sea")], length=4)
    assert draft.tokens[:2] == [word(" lighthouse"), word(" sea")]


def test_the_targets_own_tokens_stand_where_they_are_not_its_tokenizers() -> None:
    # " light" + "house" in the target's text is " lighthouse" for its tokenizer; the draft adds "house" again.
    text = [word("the"), word(" light")]
    assert drafted(WORDS, BYTES, text, list(b"house"), length=5).tokens == [word("house")]


def test_a_character_is_proposed_when_it_is_complete() -> None:
    moon = "🌙".encode()
    assert drafted(WORDS, BYTES, [word("the")], list(moon), length=3).tokens == []
    assert drafted(WORDS, BYTES, [word("the")], list(moon), length=4).tokens == byte_tokens("🌙")


def test_a_character_begun_by_the_target_is_completed() -> None:
    moon = "🌙".encode()
    draft = drafted(WORDS, BYTES, [word("the"), *byte_tokens("🌙")[:2]], list(moon), length=6, read=b"the")
    assert draft.tokens == byte_tokens("🌙")[2:]


def test_another_character_than_the_one_begun_is_not_proposed() -> None:
    draft = drafted(WORDS, BYTES, [word("the"), *byte_tokens("🌙")[:2]], list("é sea".encode()), length=8, read=b"the")
    assert draft.tokens == []


def test_a_text_that_the_target_cannot_spell_is_not_proposed() -> None:
    lossy = WordVocabulary("the", " sea", fallback=True)
    lossy.pieces[1] = b" SEA"  # it reads " sea" and says something else
    lossy.tokenize = lambda text, **_: [0, 1][: 1 + text.endswith(" sea")]  # type: ignore[method-assign]
    assert drafted(lossy, WORDS, [0], [word(" sea")]).tokens == []


@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>"])
def test_an_end_of_the_draft_is_the_targets_end(end: str) -> None:
    draft = ByteVocabulary(ends=["<|im_end|>", "<|endoftext|>"])
    got = drafted(WORDS, draft, [word("the")], [*b" sea", draft.special_texts[end]], length=8)
    assert got.tokens == [word(" sea"), WORDS.eos]


def test_an_end_behind_half_a_character_is_not_proposed() -> None:
    draft = drafted(WORDS, BYTES, [word("the")], [0xF0, BYTES.eos or 0])
    assert len(draft.steps) == 2
    assert draft.tokens == []


def test_a_control_token_of_the_same_text_is_translated_and_another_is_not() -> None:
    target = ByteVocabulary(["<think>"])
    draft = WordVocabulary(" sea", special=["<think>", "<tool>"], fallback=True)
    think, tool = draft.special_texts["<think>"], draft.special_texts["<tool>"]
    assert drafted(target, draft, list(b" sea"), [0, think]).tokens == [*b" sea", target.special_texts["<think>"]]
    assert drafted(target, draft, list(b" sea"), [0, tool]).tokens == list(b" sea")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=24), st.text(max_size=12), st.integers(1, 16), st.booleans(), st.data())
def test_a_proposal_is_the_beginning_of_what_the_draft_wrote(
    before: str, after: str, length: int, from_words: bool, data: st.DataObject
) -> None:
    target, draft = (BYTES, WORDS) if from_words else (WORDS, BYTES)
    text = target.tokenize(f"the{before}", add_special=False, parse_special=False)
    text = text[: data.draw(st.integers(1, len(text)))]
    so_far = text_of(target, text)
    read = so_far.decode(errors="ignore")  # the draft reads whole characters, and writes from there
    wrote = f"the{before}"[len(read) :] + after
    script = draft.tokenize(wrote, add_special=False, parse_special=False)
    got = drafted(target, draft, text, script, length, read=read.encode())
    proposed = text_of(target, got.tokens)
    assert f"{read}{wrote}".encode().startswith(so_far + proposed)
    assert len(got.tokens) == len(got.probs) == len(got.confidences) <= length


# -- the text so far ----------------------------------------------------------------------------------------------


class Counting(WordVocabulary):
    """Counts the characters it is asked to tokenise."""

    read = 0

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        self.read += len(text)
        return super().tokenize(text, add_special=add_special, parse_special=parse_special)


@pytest.mark.parametrize("text", [b"the sea", b"thesea", "海".encode()])
def test_only_the_end_of_the_text_is_tokenised_again(text: bytes) -> None:
    target, draft = Counting(fallback=True), Counting("the", " sea", fallback=True)
    memory = TableMemory(random_table(draft.n_tokens, seed=3))
    drafter = translated(memory, target, draft)
    drafter.begin(list(text * 500))
    drafter.draft(FixedPacing(2).begin(2))
    target.read = draft.read = 0
    evaluated = memory.evaluated
    for _ in range(20):
        drafter.commit(list(text), 0)
        drafter.draft(FixedPacing(2).begin(2))
    assert target.read < 20 * 200
    assert draft.read < 20 * 200
    assert memory.evaluated - evaluated < 20 * 12


@pytest.mark.parametrize("text", ["the sea\n the lighthouse\nthe  sea", "海" * 200, "the" * 200, "a🌙 b", "\n\n \n"])
@pytest.mark.parametrize("step", [1, 2, 7])
def test_told_in_pieces_the_draft_reads_the_same_text(text: str, step: int) -> None:
    memory = TableMemory(random_table(WORDS.n_tokens, seed=3))
    drafter = translated(memory, BYTES, WORDS)
    data = list(text.encode())
    drafter.begin(data[:1])
    for at in range(1, len(data), step):
        drafter.commit(data[at : at + step], 0)
        drafter.draft(FixedPacing(1).begin(1))
    assert text_of(WORDS, memory.tokens) == text.encode()[: len(text_of(WORDS, memory.tokens))]
    assert len(text_of(WORDS, memory.tokens)) >= len(data) - 3  # a character may have been incomplete


PAGE = """# Bread

Mix *flour*, water and salt; wait.  Then:

```py
def bake(loaf):
    if loaf.is_ready:

        return "done" or 220
```
Gutes Brot braucht Zeit – 3 Stunden, é 🌙!
"""


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("is_bytes", [False, True])
def test_a_real_draft_reads_the_tokens_of_its_own_tokenizer(
    library: Library, models: Models, step: int, is_bytes: bool
) -> None:
    # The text is cut where the two vocabularies and the rounds happen to cut it, and none of that must show.
    with (
        contextlib.closing(Model(library, models.path("tiny-small"), vocab_only=True)) as small,
        contextlib.closing(Model(library, models.path("tiny-same"), vocab_only=True)) as draft,
    ):
        target = BYTES if is_bytes else small.vocabulary
        drafter = translated(Typist(BYTES, b"", []), target, draft.vocabulary)
        text = target.tokenize(PAGE, add_special=False, parse_special=False)
        drafter.begin(text[:1])
        for at in range(1, len(text), step):
            drafter.commit(text[at : at + step], 0)
        assert drafter._settled > 40
        assert drafter._ids == draft.vocabulary.tokenize(PAGE, add_special=False, parse_special=False)


def test_words_of_the_draft_are_found_again_in_bytes_of_the_target() -> None:
    memory = TableMemory(random_table(WORDS.n_tokens, seed=3))
    drafter = translated(memory, BYTES, WORDS)
    drafter.begin(list(b"the lig"))
    drafter.draft(FixedPacing(1).begin(1))
    drafter.commit(list(b"hthouse"), 0)
    drafter.draft(FixedPacing(1).begin(1))
    assert memory.tokens == [word("the"), word(" lighthouse")]


def test_turn_markers_are_the_drafts_own_or_visible_text() -> None:
    draft = WordVocabulary("hi", special=["<|im_start|>"], fallback=True)
    memory = TableMemory(random_table(draft.n_tokens, seed=3))
    drafter = translated(memory, BYTES, draft)
    start, end = BYTES.special_texts["<|im_start|>"], BYTES.special_texts["<|im_end|>"]
    drafter.begin([start, *b"hi", end])
    drafter.draft(FixedPacing(1).begin(1))
    assert memory.tokens[0] == draft.special_texts["<|im_start|>"]
    assert text_of(draft, memory.tokens) == b"hi<|im_end|>"


def test_each_vocabulary_has_its_own_start_of_a_text() -> None:
    target = ByteVocabulary(["<bos>"], bos="<bos>", add_bos=True)
    with_start = WordVocabulary("hi", "a", special=["<s>"], add_bos=True)
    memory = TableMemory(random_table(with_start.n_tokens, seed=3))
    drafter = translated(memory, target, with_start)
    drafter.begin([256, *b"hi"])
    drafter.draft(FixedPacing(1).begin(1))
    assert memory.tokens == [with_start.bos, 0]
    without = WordVocabulary("hi", "a")
    memory = TableMemory(random_table(without.n_tokens, seed=3))
    drafter = translated(memory, target, without)
    drafter.begin([256, *b"hi"])
    drafter.draft(FixedPacing(1).begin(1))
    assert memory.tokens == [0]


def test_a_vocabulary_that_puts_a_space_before_a_text_does_not_put_it_inside() -> None:
    draft = ByteVocabulary(prefixes_space=True)
    memory = TableMemory(random_table(draft.n_tokens, seed=3))
    drafter = translated(memory, WORDS, draft)
    drafter.begin([word("the"), word(" sea"), word("house")])
    drafter.draft(FixedPacing(1).begin(1))
    assert text_of(draft, memory.tokens) == b"the seahouse"


def test_a_new_answer_keeps_what_the_texts_share() -> None:
    memory = TableMemory(random_table(WORDS.n_tokens, seed=3))
    drafter = translated(memory, BYTES, WORDS)
    drafter.begin(list(b"the sea the"))
    drafter.draft(FixedPacing(1).begin(1))
    drafter.begin(list(b"the sea house"))
    assert memory.tokens == [word("the"), word(" sea"), *byte_tokens(" ")]


def test_a_full_context_and_a_failure_pause_the_draft() -> None:
    memory = TableMemory(random_table(WORDS.n_tokens, seed=3), size=3)
    drafter = translated(memory, BYTES, WORDS)
    drafter.begin(list(b"the sea sea sea"))
    assert len(drafter.draft(FixedPacing(1).begin(1))) == 0
    assert drafter.paused == "Paused: the draft's context of 3 tokens is full."

    def fail() -> None:
        raise SlipstreamError("It broke.")

    drafter.begin(list(b"the"))
    memory.decode_hook = fail  # type: ignore[assignment]
    assert len(drafter.draft(FixedPacing(1).begin(1))) == 0
    assert drafter.paused == "Paused: the draft failed. It broke."
    assert memory.tokens == []
