from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.rounds import DrafterKind, Span, TokenSource
from app.engine.text import KNOWN_REASONING_TAGS, ReasoningTags, TextStream

THINK, BRACKETS, COHERE, SEED, GPT_OSS = KNOWN_REASONING_TAGS
EMOJI = "a🔥é👩‍👩‍👧中🔥🔥z"


class Pieces:
    """A vocabulary whose tokens are whatever a test cuts the text into; `control` ones have no text of their own."""

    def __init__(self, pieces: Iterable[bytes | str], control: Sequence[str] = ()) -> None:
        self._pieces = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
        self._control = {text.encode() for text in control}

    def __call__(self, token: int, *, special: bool = False) -> bytes:
        piece = self._pieces[token]
        return b"" if piece in self._control and not special else piece

    def __len__(self) -> int:
        return len(self._pieces)


def streamed(
    pieces: Iterable[bytes | str],
    *,
    stop: Sequence[str] = (),
    reasoning: ReasoningTags | None = None,
    starts_in_reasoning: bool = False,
    control: Sequence[str] = (),
    release_every: int = 1,
) -> tuple[TextStream, list[Span], list[str]]:
    """The stream at its end, all spans, and what each token added."""
    vocabulary = Pieces(pieces, control)
    stream = TextStream(vocabulary, stop=stop, reasoning=reasoning, starts_in_reasoning=starts_in_reasoning)
    spans: list[Span] = []
    added: list[str] = []
    for token in range(len(vocabulary)):
        added.append(stream.push(token, TokenSource.draft, DrafterKind.model))
        if token % release_every == 0:
            spans += stream.release()
        if stream.stopped:
            break
    spans += stream.finish()
    return stream, spans, added


def cut(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    pieces = []
    for length in lengths:
        pieces.append(data[:length])
        data = data[length:]
    return [*pieces, data] if data else pieces


def cut_at_first_stop(text: str, stops: Sequence[str]) -> str:
    """The plain truth: read one character after the other, and end at the first stop string that is complete."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text


def joined(spans: Iterable[Span], *, is_reasoning: bool = False) -> str:
    return "".join(span.text for span in spans if span.is_reasoning == is_reasoning)


# -- characters ---------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 4), max_size=60))
def test_characters_cut_at_any_byte_arrive_whole(lengths: list[int]) -> None:
    stream, spans, added = streamed(cut(EMOJI.encode(), lengths))
    assert "".join(added) == joined(spans) == stream.text == EMOJI
    assert not any("�" in text for text in added)


@given(st.text(), st.lists(st.integers(1, 5)))
def test_any_text_arrives_as_it_was(text: str, lengths: list[int]) -> None:
    stream, spans, added = streamed(cut(text.encode(), lengths))
    assert stream.text == joined(spans) == "".join(added) == text


def test_two_emoji_appear_one_by_one() -> None:
    _, _, added = streamed([b"\xf0\x9f", b"\x94\xa5", b"\xf0\x9f\x94", b"\xa5"])
    assert added == ["", "🔥", "", "🔥"]


def test_a_stream_that_ends_inside_a_character_shows_one_replacement_mark() -> None:
    for end in (1, 2, 3):
        stream, spans, _ = streamed([b"ab", "🔥".encode()[:end]])
        assert stream.text == joined(spans) == "ab�"


def test_an_invalid_byte_gives_one_replacement_mark_and_the_text_goes_on() -> None:
    assert streamed([b"a", b"\xff", "b🔥".encode()])[0].text == "a�b🔥"


def test_control_tokens_have_no_text() -> None:
    stream, _, added = streamed(["a", "<|eot_id|>", "b"], control=["<|eot_id|>"])
    assert (stream.text, added) == ("ab", ["a", "", "b"])


# -- stop strings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "pieces", "expected", "is_stopped"),
    [
        ("DEFGHIJ", ["ABC", "DEF", "G", "HI", "J", "K"], "ABC", True),
        ("\nUser:", ["hi\nUse", "s it"], "hi\nUses it", False),
        ("\n", ["Who", "?\n"], "Who?", True),
        ("aab", ["a", "a", "a", "b"], "a", True),
        ("END", ["E", "N"], "EN", False),
        ("END", ["so ENDing"], "so ", True),
        ("🔥", [b"a\xf0\x9f", b"\x94\xa5b"], "a", True),
    ],
)
def test_stop_string(stop: str, pieces: list[bytes | str], expected: str, is_stopped: bool) -> None:
    stream, spans, _ = streamed(pieces, stop=[stop])
    assert (stream.text, stream.stopped) == (expected, is_stopped)
    assert joined(spans) == expected


def test_of_several_stop_strings_the_one_counts_that_is_complete_first() -> None:
    for pieces in (["abcd"], ["ab", "cd"], "abcd"):
        assert streamed(pieces, stop=["abcd", "bc"])[0].text == "a"
        assert streamed(pieces, stop=["bc", "abc"])[0].text == ""


def test_what_comes_after_the_stop_string_in_the_round_is_not_taken() -> None:
    stream = TextStream(Pieces(["a", "STOP", "b"]), stop=["STOP"])
    texts = [stream.push(token, TokenSource.draft, DrafterKind.model) for token in range(3)]
    assert texts == ["a", "STOP", ""]
    assert stream.stopped
    assert joined(stream.finish()) == "a"


SMALL = st.text("ab\n<", max_size=30)


@given(SMALL, st.lists(st.integers(1, 4)), st.lists(st.text("ab\n<", max_size=4), max_size=3), st.integers(1, 9))
def test_the_text_ends_at_the_first_stop_string_however_it_is_cut(
    text: str, lengths: list[int], stops: list[str], release_every: int
) -> None:
    stream, spans, _ = streamed(cut(text.encode(), lengths), stop=stops, release_every=release_every)
    expected = cut_at_first_stop(text, stops)
    assert joined(spans) == stream.text == expected
    assert stream.stopped == (expected != text)


@given(SMALL, st.lists(st.integers(1, 4)), st.lists(st.text("ab\n<", min_size=1, max_size=4), max_size=3))
def test_nothing_of_a_stop_string_is_ever_shown(text: str, lengths: list[int], stops: list[str]) -> None:
    pieces = Pieces(cut(text.encode(), lengths))
    stream = TextStream(pieces, stop=stops)
    shown = ""
    for token in range(len(pieces)):
        stream.push(token, TokenSource.plain, DrafterKind.none)
        shown += joined(stream.release())
        assert cut_at_first_stop(text, stops).startswith(shown)
        if stream.stopped:
            break


def test_only_what_may_still_become_a_stop_string_is_held_back() -> None:
    stream = TextStream(Pieces(["hello\nUs", "ual"]), stop=["\nUser:"])
    stream.push(0, TokenSource.plain, DrafterKind.none)
    assert joined(stream.release()) == "hello"
    stream.push(1, TokenSource.plain, DrafterKind.none)
    assert joined(stream.release()) == "\nUsual"


# -- spans --------------------------------------------------------------------------------------------------------


def test_every_token_has_a_span_of_its_own_with_its_source() -> None:
    stream = TextStream(Pieces(["one", " two", " three"]))
    stream.push(0, TokenSource.draft, DrafterKind.lookup)
    stream.push(1, TokenSource.draft, DrafterKind.lookup)
    stream.push(2, TokenSource.recovered, DrafterKind.lookup)
    assert stream.release() == (
        Span("one", TokenSource.draft, DrafterKind.lookup),
        Span(" two", TokenSource.draft, DrafterKind.lookup),
        Span(" three", TokenSource.recovered, DrafterKind.lookup),
    )
    assert stream.release() == ()


def test_a_token_held_back_in_part_keeps_its_source() -> None:
    stream = TextStream(Pieces(["ab", "c"]), stop=["bx"])
    stream.push(0, TokenSource.draft, DrafterKind.model)
    assert stream.release() == (Span("a", TokenSource.draft, DrafterKind.model),)
    stream.push(1, TokenSource.bonus, DrafterKind.model)
    assert stream.release() == (
        Span("b", TokenSource.draft, DrafterKind.model),
        Span("c", TokenSource.bonus, DrafterKind.model),
    )


def test_a_token_held_back_in_part_is_one_span_if_it_is_released_at_once() -> None:
    stream = TextStream(Pieces(["ab", "c"]), stop=["bx"])
    stream.push(0, TokenSource.draft, DrafterKind.model)
    stream.push(1, TokenSource.draft, DrafterKind.model)
    assert [span.text for span in stream.release()] == ["ab", "c"]


def test_a_token_of_both_channels_is_cut_in_two() -> None:
    _, spans, _ = streamed(["so</think>yes"], reasoning=THINK, starts_in_reasoning=True)
    assert [(span.text, span.is_reasoning) for span in spans] == [("so", True), ("yes", False)]


# -- reasoning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tags", [THINK, BRACKETS, COHERE, SEED])
def test_a_closing_tag_cut_anywhere_divides_reasoning_from_answer(tags: ReasoningTags) -> None:
    text = f"{tags.opening}\nplan < this\n\n{tags.closing}\n\ngo"
    for first in range(1, len(text)):
        for second in range(first, len(text)):
            stream, spans, _ = streamed([text[:first], text[first:second], text[second:]], reasoning=tags)
            assert (stream.reasoning, stream.text) == ("plan < this", "go"), (first, second)
            assert joined(spans, is_reasoning=True) == "plan < this"


def test_a_prompt_that_ends_with_the_opening_tag() -> None:
    stream, _, _ = streamed(["plan", "ning</thi", "nk>go"], reasoning=THINK, starts_in_reasoning=True)
    assert (stream.reasoning, stream.text) == ("planning", "go")


def test_reasoning_that_is_cut_off_is_all_reasoning() -> None:
    stream, _, _ = streamed(["a", "bc"], reasoning=THINK, starts_in_reasoning=True)
    assert (stream.reasoning, stream.text, stream.is_reasoning) == ("abc", "", True)


def test_a_closing_tag_that_is_cut_off_is_text() -> None:
    stream, _, _ = streamed(["abc</thi"], reasoning=THINK, starts_in_reasoning=True)
    assert (stream.reasoning, stream.text) == ("abc</thi", "")


def test_a_model_that_repeats_the_opening_tag_of_its_prompt() -> None:
    stream, _, _ = streamed(["<thi", "nk>\nso</think>yes"], reasoning=THINK, starts_in_reasoning=True)
    assert (stream.reasoning, stream.text) == ("so", "yes")


def test_tags_inside_the_answer_are_text() -> None:
    answer = "Use `<think>draft</think>` so.\n</think>"
    stream, _, _ = streamed(["<think>hm</think>", *answer], reasoning=THINK)
    assert (stream.reasoning, stream.text) == ("hm", answer)
    stream, _, _ = streamed(["Use ", "<think>", "x", "</think>"], reasoning=THINK)
    assert (stream.reasoning, stream.text) == ("", "Use <think>x</think>")


def test_without_tags_everything_is_text() -> None:
    stream, _, _ = streamed(["\n<think>", "x", "</think>"])
    assert stream.text == "\n<think>x</think>"


def test_white_space_before_an_answer_without_reasoning_is_kept() -> None:
    stream, _, _ = streamed(["\n", "  x"], reasoning=THINK)
    assert stream.text == "\n  x"
    stream, _, _ = streamed(["  \n"], reasoning=THINK)
    assert stream.text == "  \n"


def test_the_indentation_of_an_answer_behind_reasoning_is_kept() -> None:
    stream, _, _ = streamed(["<think>x\n</think>\n\n    code\n"], reasoning=THINK)
    assert stream.text == "    code\n"


def test_tags_that_are_control_tokens() -> None:
    tags = ["<think>", "</think>"]
    stream, _, added = streamed(["<think>", "so", "</think>", "\n\n", "yes"], reasoning=THINK, control=tags)
    assert (stream.reasoning, stream.text) == ("so", "yes")
    assert added == ["<think>", "so", "</think>", "\n\n", "yes"]
    stream, _, _ = streamed(["yes", "<think>", "no"], reasoning=THINK, control=tags)
    assert stream.text == "yesno"  # a stray control token has no text


def test_channels_of_gpt_oss() -> None:
    control = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|return|>"]
    thinking = ["<|channel|>", "analysis", "<|message|>", "so", " it", "<|end|>", "<|start|>", "assistant"]
    final = ["<|channel|>", "final", "<|message|>", "yes", "<|return|>"]
    stream, _, _ = streamed([*thinking, *final], reasoning=GPT_OSS, control=control)
    assert (stream.reasoning, stream.text) == ("so it", "yes")
    stream, _, _ = streamed(final, reasoning=GPT_OSS, control=control)
    assert (stream.reasoning, stream.text) == ("", "yes")


def test_a_stop_string_inside_the_reasoning_ends_it() -> None:
    stream, _, _ = streamed(["<think>a", "b</think>c"], reasoning=THINK, stop=["b</th"])
    assert (stream.reasoning, stream.text, stream.stopped) == ("a", "", True)


TAGGED = st.lists(st.sampled_from(["<think>", "</think>", "</thi", "<th", "\n", " ", "a", "b", "🔥"]), max_size=14)


@given(
    TAGGED,
    st.lists(st.integers(1, 6)),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([(), ("ab",), ("\na", "k>b")]),
)
def test_reasoning_and_answer_do_not_depend_on_how_the_text_is_cut(
    parts: list[str], lengths: list[int], release_every: int, inside: bool, stops: tuple[str, ...]
) -> None:
    data = "".join(parts).encode()
    whole, _, _ = streamed([data], reasoning=THINK, starts_in_reasoning=inside, stop=stops)
    stream, spans, _ = streamed(
        cut(data, lengths), reasoning=THINK, starts_in_reasoning=inside, stop=stops, release_every=release_every
    )
    assert (stream.reasoning, stream.text) == (whole.reasoning, whole.text)
    assert joined(spans) == stream.text
    assert joined(spans, is_reasoning=True) == stream.reasoning


@given(TAGGED, st.booleans())
def test_reasoning_is_what_stands_between_the_tags(parts: list[str], inside: bool) -> None:
    text = "".join(parts)
    stream, _, _ = streamed(text, reasoning=THINK, starts_in_reasoning=inside)
    body = text.lstrip("\r\n") if inside else text.lstrip()
    if not inside and not body.startswith("<think>"):
        assert (stream.reasoning, stream.text) == ("", text)
        return
    reasoning, _, answer = body.removeprefix("<think>").partition("</think>")
    assert (stream.reasoning, stream.text) == (reasoning.strip("\r\n"), answer.lstrip("\r\n"))
