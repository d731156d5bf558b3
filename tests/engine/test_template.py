from __future__ import annotations

import sys
import threading
import tracemalloc
from typing import Any

import pytest

from app.engine.template import ChatTemplate, TemplateUnusableError
from app.errors import PromptError
from tests.support.chat_templates import CHATML, CORPUS, ENDLESS, GEMMA2, QWEN3, SYNTAX_ERROR, ZEPHYR

SYSTEM = {"role": "system", "content": "Answer in French."}
ONE_TURN = [{"role": "user", "content": "Hello"}]
THREE_TURNS = [
    {"role": "user", "content": "first question"},
    {"role": "assistant", "content": "first answer"},
    {"role": "user", "content": "second question"},
    {"role": "assistant", "content": "second answer"},
    {"role": "user", "content": "third question"},
]


def template(source: str, **options: Any) -> ChatTemplate:
    return ChatTemplate(source, bos_text="<s>", eos_text="</s>", **options)


# -- what templates do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("messages", [ONE_TURN, THREE_TURNS], ids=["one turn", "three turns"])
@pytest.mark.parametrize("system", [[], [SYSTEM]], ids=["no system", "system"])
@pytest.mark.parametrize("name", CORPUS.keys() - {"gemma 2", "in parts"})
def test_the_corpus_renders(name: str, system: list[dict[str, str]], messages: list[dict[str, str]]) -> None:
    text = template(CORPUS[name]).render([*system, *messages])
    places = [text.index(message["content"]) for message in messages]
    assert places == sorted(places)
    assert (SYSTEM["content"] in text) == bool(system)


def test_chatml_to_the_letter() -> None:
    assert template(CHATML).render([SYSTEM, *ONE_TURN]) == (
        "<|im_start|>system\nAnswer in French.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template(CHATML).render(ONE_TURN, add_generation_prompt=False).endswith("Hello<|im_end|>\n")


def test_white_space_around_blocks_is_that_of_transformers() -> None:
    assert template("  {% if true %}\n  x\n  {% endif %}\ny\n").render(ONE_TURN) == "  x\ny"


def test_special_texts_reach_the_template() -> None:
    assert template(ZEPHYR).render(ONE_TURN) == "<|user|>\nHello</s>\n<|assistant|>\n"
    assert template(GEMMA2).render(ONE_TURN) == "<s><start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n"


def test_variables_reach_the_template() -> None:
    assert template(QWEN3).render(ONE_TURN, {"enable_thinking": False}).endswith("<think>\n\n</think>\n\n")
    assert template(QWEN3).render(ONE_TURN).endswith("<|im_start|>assistant\n")


def test_json_is_that_of_transformers() -> None:
    source = "{{ messages | tojson }}|{{ messages[0] | tojson(indent=1) }}"
    assert template(source).render([{"role": "user", "content": "é <b>"}]) == (
        '[{"role": "user", "content": "é <b>"}]|{\n "role": "user",\n "content": "é <b>"\n}'
    )


def test_what_jinja_has_beside() -> None:
    source = (
        "{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %} "
        "{{ ['a', 'b'] | join('+') }} {{ messages | join('/', attribute='role') }} {{ '-'.join(['x', 'y']) }} "
        "{{ '%s: %d' | format('n', 7) }} {{ '{} {k}'.format(1, k=2) }} {{ 'In 2023: %s' % 'ok' }} {{ 2 ** 10 }} "
        "{{ 3 * 'ab' }} {{ [1] + [2] }} {{ 'a' ~ 1 }} {{ 'aXb'.replace('X', '--') }} {{ strftime_now('%Y') | length }}"
    )
    assert template(source).render(ONE_TURN) == "012 a+b user x-y n: 7 1 2 In 2023: ok 1024 ababab [1, 2] a1 a--b 4"


def test_a_template_renders_again_after_it_failed() -> None:
    gemma = template(GEMMA2)
    with pytest.raises(PromptError):
        gemma.render([SYSTEM, *ONE_TURN])
    assert "Hello" in gemma.render(ONE_TURN)


def test_what_earlier_renderings_cost_does_not_add_up() -> None:
    costly = template("{{ ('a' * 9000000) | length }}")
    assert {costly.render(ONE_TURN) for _ in range(5)} == {"9000000"}


# -- what they must not do ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (GEMMA2, "refuses the conversation: System role not supported."),
        ("{{ unknown() }}", "failed: 'unknown' is undefined."),
        ("{{ 1 / 0 }}", "failed: division by zero."),
        ("{{ 'a' + 1 }}", "failed: can only concatenate"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "failed: it is nested too deeply."),
        ("{{ raise_exception('a\\nb!') }}", "refuses the conversation: a b."),
    ],
)
def test_failures_are_sentences(source: str, words: str) -> None:
    with pytest.raises(PromptError) as caught:
        template(source).render([SYSTEM, *ONE_TURN])
    assert str(caught.value).startswith(f"This model's chat template {words}")
    assert not isinstance(caught.value, TemplateUnusableError)


@pytest.mark.parametrize(
    "source",
    [
        SYNTAX_ERROR,
        "{% unheard_of %}",
        "{{ x | unheard_of }}",
        "{{" + "(" * 500 + "1" + ")" * 500 + "}}",
        "{% if x %}" * 500 + "{% endif %}" * 500,
        "{% for a in x %}" * 40 + "{% endfor %}" * 40,
        "a" * 600_000,
    ],
    ids=["syntax", "tag", "filter", "parentheses", "ifs", "loops", "long"],
)
def test_what_cannot_be_read_is_said_at_the_first_use(source: str) -> None:
    broken = template(source)
    for _ in range(2):
        with pytest.raises(
            TemplateUnusableError, match=r"^This model's chat template (cannot be read: .*|is too long.*)\.$"
        ):
            broken.render(ONE_TURN)


@pytest.mark.parametrize(
    "source",
    [
        ENDLESS,
        "{% for a in range(10 ** 9) %}{% endfor %}",
        "{% for a in range(99999) %}{{ range(99999) | map('string') | list | length }}{% endfor %}",
        "{% macro f(n) %}{% for a in 'abcd' %}{% if n %}{{ f(n - 1) }}{% endif %}{% endfor %}{% endmacro %}{{ f(50) }}",
    ],
    ids=["nested loops", "one long loop", "filters", "macros"],
)
def test_endless_templates_end(source: str) -> None:
    with pytest.raises(PromptError):
        template(source, time_limit=0.1).render(ONE_TURN)


def test_the_time_limit_works_off_the_main_thread() -> None:
    caught: list[BaseException] = []

    def render() -> None:
        try:
            template(ENDLESS, time_limit=0.1).render(ONE_TURN)
        except PromptError as error:
            caught.append(error)

    thread = threading.Thread(target=render)
    thread.start()
    thread.join()
    assert [str(error) for error in caught] == ["This model's chat template did not finish within 0.1 seconds."]


def test_a_trace_function_that_was_set_stays_set() -> None:
    def trace(_frame: object, _event: str, _argument: object) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        template(CHATML).render(ONE_TURN)
        after_success = sys.gettrace()
        with pytest.raises(PromptError):
            template(ENDLESS, time_limit=0.01).render(ONE_TURN)
        after_limit = sys.gettrace()
    finally:
        sys.settrace(before)
    assert after_success is trace
    assert after_limit is trace


GROWING = "{% set ns = namespace(x='abcd', l=['abcd']) %}{% for i in range(60) %}<STEP>{% endfor %}{{ ns.x | length }}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 10 }}",
        "{{ ['a'] * 10 ** 10 }}",
        "{{ 9 ** (9 ** (9 ** 9)) }}",
        "{{ 'a' | center(10 ** 9) }}",
        "{{ 'a\\nb' | indent(10 ** 9) }}",
        "{{ 'a'.ljust(10 ** 9) }}",
        "{{ 'a'.zfill(10 ** 9) }}",
        "{{ '\\t'.expandtabs(10 ** 9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10 ** 9, 1) }}",
        "{{ '%(x)1000000000d' | format(x=1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10 ** 9) }}",
        "{{ strftime_now('%01000000000Y') }}",
        "{{ messages | tojson(indent=10 ** 9) }}",
        "{{ ('a' * 1000000).join(range(99999)) }}",
        "{{ range(99999) | map('string') | join('a' * 1000000) }}",
        "{{ ('a' * 10000).replace('a', 'a' * 10000) }}",
        "{{ ('a' * 10000) | replace('a', 'a' * 10000) }}",
        "{% for i in range(99999) %}" + "x" * 10000 + "{% endfor %}",
        "{% set x %}{% for i in range(99999) %}" + "x" * 10000 + "{% endfor %}{% endset %}",
        "{% filter upper %}{% for i in range(99999) %}" + "x" * 10000 + "{% endfor %}{% endfilter %}",
        GROWING.replace("<STEP>", "{% set ns.x = ns.x + ns.x %}"),
        GROWING.replace("<STEP>", "{% set ns.x = ns.x ~ ns.x %}"),
        GROWING.replace("<STEP>", "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
        GROWING.replace("<STEP>", "{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
        GROWING.replace("<STEP>", "{% set ns.x = '{}{}'.format(ns.x, ns.x) %}"),
        GROWING.replace("<STEP>", "{% set ns.l = ns.l + ns.l %}"),
        GROWING.replace("<STEP>", "{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l }}",
        GROWING.replace("<STEP>", "{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l | tojson }}",
        GROWING.replace("<STEP>", "{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l | string }}",
        GROWING.replace("<STEP>", "{% set ns.l = [ns.l, ns.l] %}") + "{{ '' ~ ns.l }}",
    ],
)
def test_templates_that_grow_without_measure_are_refused(source: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TemplateUnusableError):
            template(source, time_limit=0.3).render(ONE_TURN)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


def test_a_prompt_of_endless_length_is_refused() -> None:
    source = "{% for i in range(2000) %}" + "x" * 10000 + "{% endfor %}"
    with pytest.raises(TemplateUnusableError, match="more text than any prompt can hold"):
        template(source).render(ONE_TURN)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ (messages | attr('__class__')).__base__ }}",
        "{{ raise_exception.__globals__['sys'] }}",
        "{{ strftime_now.__code__.co_filename }}",
        "{{ '{0.__class__.__base__}'.format(messages) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{% include '/etc/hostname' %}",
        "{{ lipsum(1) }}",
    ],
)
def test_templates_reach_nothing_but_the_conversation(source: str) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    with pytest.raises(PromptError):
        template(source).render(messages)
    assert messages == ONE_TURN
