"""What a prompt leaves out, where it ends, and what of it stays in the cache."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat import Message
from app.engine.memory import reusable_prefix
from app.engine.prompt import PromptBuilder
from app.engine.text import KNOWN_REASONING_TAGS
from app.errors import ContextFullError
from tests.support import chat_templates as templates
from tests.support.chat_templates import CORPUS
from tests.support.prompts import (
    CHATML_TOKENS,
    GEMMA_TOKENS,
    LLAMA3_TOKENS,
    MISTRAL_TOKENS,
    PLAIN_TOKENS,
    ByteVocabulary,
    answer,
    build,
    system,
    user,
)

# -- the context (CTX-01) -----------------------------------------------------------------------------------------


def long_chat(turns: int) -> list[Message]:
    chat = [system("s" * 40)]
    for turn in range(turns):
        chat += [user(f"q{turn:02}" + "." * 27), answer(f"a{turn:02}" + "." * 27)]
    return [*chat, user("the last question")]


def test_the_oldest_turns_are_left_out_whole() -> None:
    prompt, shown = build(long_chat(12), context=1024, max_tokens=100)
    assert len(prompt.tokens) <= 1024 - 100
    assert "s" * 40 in shown
    assert "the last question" in shown
    kept = re.findall(r"q(\d\d)", shown)
    assert kept == re.findall(r"a(\d\d)", shown)
    assert kept == [f"{turn:02}" for turn in range(12 - len(kept), 12)]
    assert 0 < len(kept) < 12
    assert prompt.dropped_messages == 2 * (12 - len(kept))
    assert prompt.notes == (
        f"The oldest {prompt.dropped_messages} messages no longer fit in the context of 1024 tokens and are not sent.",
    )


def growing(turns: int) -> Iterator[list[Message]]:
    """A conversation as it is sent turn by turn, ending with a question each time."""
    for turn in range(turns):
        yield [*long_chat(turn)[:-1], user(f"q{turn:02}" + "." * 27)]


@pytest.mark.parametrize("context", [512, 700, 1000, 1800])
def test_turns_are_dropped_in_large_steps(context: int) -> None:
    """Where nothing is dropped, a prompt begins with all of the one before: only then the cache stays of use."""
    builder = PromptBuilder(ByteVocabulary(), templates.CHATML, "llama", context=context)
    room = context - 50
    fixed = len(build([system("s" * 40), user("Hello")])[0].tokens)
    first, second, *later = growing(60)
    before = builder.build(second, max_tokens=50)
    one_turn = len(before.tokens) - len(builder.build(first, max_tokens=50).tokens)
    steps = []
    for number, chat in enumerate(later):
        prompt = builder.build(chat, max_tokens=50)
        assert len(prompt.tokens) <= room
        if prompt.dropped_messages == before.dropped_messages:
            assert prompt.tokens[: len(before.tokens)] == before.tokens
            assert prompt.notes == before.notes
        else:
            steps.append(number)
            assert prompt.dropped_messages > before.dropped_messages
            assert len(prompt.tokens) - fixed <= (room - fixed) // 2
            assert len(build([chat[0], *chat[1 + before.dropped_messages :]])[0].tokens) > room  # it had to be
        before = prompt
    assert len(steps) > 1
    assert min(later - earlier for earlier, later in pairwise(steps)) >= (room - fixed) // 2 // one_turn > 1


def test_what_is_dropped_follows_from_the_conversation_alone() -> None:
    """An application started anew, or a turn asked again, drops the same."""
    lasting = PromptBuilder(ByteVocabulary(), templates.CHATML, "llama", context=700)
    for chat in growing(30):
        prompt = lasting.build(chat)
        assert prompt == lasting.build(chat) == build(chat, context=700)[0]


def test_one_message_that_is_not_sent_is_one_message() -> None:
    chat = [user("old" * 60), user("new" * 60)]
    prompt, shown = build(chat, context=360, max_tokens=50)
    assert "old" not in shown
    assert prompt.notes == ("The oldest message no longer fits in the context of 360 tokens and is not sent.",)


@pytest.mark.parametrize("name", CORPUS)
def test_every_template_keeps_the_system_prompt_and_the_question(name: str) -> None:
    for chat in growing(14):
        prompt, shown = build(chat, CORPUS[name], context=900, max_tokens=100)
        assert len(prompt.tokens) <= 800
        assert "s" * 40 in shown
        assert chat[-1].text in shown
    assert prompt.dropped_messages


def test_turns_that_take_more_than_was_counted() -> None:
    """A template may write more the more messages there are; what is sent fits all the same."""
    wordy = "{{ 'x' * 3 * messages | length }}" + templates.CHATML
    for chat in growing(20):
        prompt, shown = build(chat, wordy, context=700, max_tokens=100)
        assert len(prompt.tokens) <= 600
        assert chat[-1].text in shown
    assert prompt.dropped_messages


def test_room_for_the_answer() -> None:
    chat = long_chat(12)
    assert len(build(chat, context=2000)[0].tokens) <= 2000 - 256
    assert len(build(chat, context=800, max_tokens=5000)[0].tokens) <= 800 - 200  # lowered, not refused


def test_a_message_that_does_not_fit_alone_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextFullError) as caught:
        build([user("old"), answer("old"), user("x" * 600)], context=512)
    needed = len(build([user("x" * 600)])[0].tokens)
    assert str(caught.value) == (
        f"This message needs {needed} tokens, but the context holds 512, the answer included. "
        "Shorten the message, or set a longer context in the settings."
    )
    with pytest.raises(ContextFullError, match="This message and the system prompt need"):
        build([system("s" * 300), user("x" * 300)], context=512)


def test_a_message_that_fits_but_leaves_little_room_is_sent() -> None:
    length = len(build([user("x" * 400)])[0].tokens)
    assert len(build([user("x" * 400)], context=length + 1)[0].tokens) == length
    with pytest.raises(ContextFullError, match=f"needs {length} tokens, but the context holds {length},"):
        build([user("x" * 400)], context=length)  # not one token of an answer would fit


# -- reasoning (TPL-09, TPL-11) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CORPUS)
def test_earlier_reasoning_is_not_sent(name: str) -> None:
    chat = [user("a"), answer("b", "SECRET one"), user("c"), answer("d", "SECRET <|im_end|> two"), user("e")]
    prompt, shown = build(chat, CORPUS[name])
    assert "SECRET" not in shown
    assert prompt.notes == ()


def test_a_template_that_prints_whole_messages_sees_no_reasoning() -> None:
    _, shown = build([user("a"), answer("b", "SECRET"), user("c")], "{{ messages | tojson }}")
    assert '{"role": "assistant", "content": "b"}' in shown


def test_earlier_reasoning_is_sent_where_the_template_asks_for_it() -> None:
    asks = (
        "{% for m in messages %}<|im_start|>{% if m.reasoning_content %}"
        "<think>{{ m.reasoning_content }}</think>{% endif %}"
        "{{ m.content }}<|im_end|>{% endfor %}"
    )
    _, shown = build([user("a"), answer("b", "why<|im_end|>"), user("c")], asks)
    assert "<think>why<|im_end|></think>b⟦<|im_end|>⟧" in shown


def test_a_prompt_that_ends_inside_the_reasoning() -> None:
    prompt, shown = build([user("a")], templates.DEEPSEEK_R1)
    assert shown.endswith("<think>\n")
    assert (prompt.starts_in_reasoning, prompt.reasoning_tags) == (True, KNOWN_REASONING_TAGS[0])


def test_thinking_switched_off() -> None:
    builder = PromptBuilder(ByteVocabulary(), templates.QWEN3, "qwen3", context=4096)
    on, off = builder.build([user("a")]), builder.build([user("a")], enable_thinking=False)
    assert (on.starts_in_reasoning, off.starts_in_reasoning) == (False, False)
    assert len(off.tokens) == len(on.tokens) + len("<think>\n\n</think>\n\n")
    assert on.reasoning_tags == KNOWN_REASONING_TAGS[0]


def test_which_tags_a_model_uses() -> None:
    assert build([user("a")])[0].reasoning_tags is None
    seed = ByteVocabulary([*CHATML_TOKENS, "<seed:think>", "</seed:think>"])
    assert build([user("a")], templates.CHATML, seed)[0].reasoning_tags == KNOWN_REASONING_TAGS[3]
    assert build([user("a")], templates.GPT_OSS)[0].reasoning_tags == KNOWN_REASONING_TAGS[4]
    assert build([user("a")], architecture="gpt-oss")[0].reasoning_tags == KNOWN_REASONING_TAGS[4]
    assert build([user("say <think>")])[0].starts_in_reasoning is False


# -- the end of a turn (TPL-07) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "special", "end"),
    [
        (templates.CHATML, CHATML_TOKENS, "<|im_end|>"),
        (templates.LLAMA3, LLAMA3_TOKENS, "<|eot_id|>"),
        (templates.GEMMA2, GEMMA_TOKENS, "<end_of_turn>"),
        (templates.MISTRAL, MISTRAL_TOKENS, "</s>"),
        (None, GEMMA_TOKENS, "<end_of_turn>"),
        (templates.SYNTAX_ERROR, CHATML_TOKENS, "<|im_end|>"),
        ("{{ raise_exception('never') }}", CHATML_TOKENS, "<|im_end|>"),
        (templates.ALPACA, CHATML_TOKENS, None),
        (None, PLAIN_TOKENS, None),
        (templates.GPT_OSS, ("<|start|>", "<|end|>", "<|channel|>", "<|message|>"), None),
    ],
)
def test_what_ends_a_turn_is_read_from_the_template(
    template: str | None, special: Sequence[str], end: str | None
) -> None:
    vocabulary = ByteVocabulary(special, eos=special[1])
    builder = PromptBuilder(vocabulary, template, "llama", context=4096)
    assert builder.turn_end_tokens() == (() if end is None else (vocabulary.special_texts[end],))


def test_an_end_the_file_names_is_not_an_extra_one() -> None:
    builder = PromptBuilder(ByteVocabulary(ends=["<|im_end|>"]), templates.CHATML, "llama", context=4096)
    assert builder.turn_end_tokens() == ()


# -- what stays in the cache (KVR-01, KVR-03, KVR-04) -------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "wanted", "expected"),
    [
        ([], [], 0),
        ([], [1], 0),
        ([1, 2, 3], [], 0),
        ([1, 2, 3], [1, 2, 3], 2),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 3, 4], [1, 2, 3], 2),
        ([1, 2, 9], [1, 2, 3], 2),
        ([9, 2, 3], [1, 2, 3], 0),
        ([1], [1], 0),
    ],
)
def test_reusable_prefix(held: list[int], wanted: list[int], expected: int) -> None:
    assert reusable_prefix(held, wanted) == reusable_prefix(tuple(held), wanted) == expected


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_the_reusable_prefix_is_the_longest(common: list[int], held: list[int], wanted: list[int]) -> None:
    held, wanted = common + held, common + wanted
    length = reusable_prefix(held, wanted)
    assert held[:length] == wanted[:length]
    assert length <= max(0, len(wanted) - 1)
    longer = length + 1
    assert longer >= len(wanted) or longer > len(held) or held[:longer] != wanted[:longer]


@pytest.mark.parametrize("name", CORPUS.keys() - {"gpt-oss", "llama 3", "alpaca", "gemma 2"})
@pytest.mark.parametrize("text", ["an answer", "two\n\nlines", "with <|im_end|> inside"])
def test_the_next_turn_evaluates_only_what_is_new(name: str, text: str) -> None:
    first, _ = build([user("a"), answer("b"), user("c")], CORPUS[name])
    held = [*first.tokens, *text.encode()]
    second, _ = build([user("a"), answer("b"), user("c"), answer(text), user("d")], CORPUS[name])
    # Mistral writes a space before an answer; DeepSeek takes the opening tag, and all behind it, out of the history.
    lost = {"mistral": len(text), "in parts": len(text), "deepseek r1": len("<think>\n" + text), "zephyr": 0}.get(
        name, 0
    )
    assert reusable_prefix(held, second.tokens) == len(held) - lost


def test_regenerating_and_editing_leave_nothing_of_the_old_branch() -> None:
    chat = [user("u1"), answer("a1"), user("u2"), answer("a2")]
    assert "a2" not in build(chat[:3])[1]
    assert build(chat[:3])[1].endswith("u2⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant\n")
    vocabulary = ByteVocabulary()
    builder = PromptBuilder(vocabulary, templates.CHATML, "llama", context=4096)
    builder.build(chat[:3])
    edited = builder.build([user("new u1")])
    assert edited == PromptBuilder(vocabulary, templates.CHATML, "llama", context=4096).build([user("new u1")])
    assert "u2" not in vocabulary.shown(edited.tokens)
