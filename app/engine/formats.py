"""Chat formats of whole families of models, for files whose own template is missing or does not work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """`markers` are the tokens by which a vocabulary shows that its model was trained on the format."""

    name: str
    markers: tuple[str, ...]
    source: str  # a Jinja template
    stop: tuple[str, ...] = ()

    @property
    def explanation(self) -> str:
        if not self.markers:
            return (
                "Its vocabulary has the markers of no known chat format, so the conversation was sent as plain text "
                "(User:, Assistant:). The model may not be made for chatting."
            )
        return f"The {self.name} format was used instead, because its markers are in the model's vocabulary."


# ChatML first: where its markers stand beside those of another family, they were added by the fine-tuning that counts.
FORMATS = (
    Format(
        "ChatML",
        ("<|im_start|>", "<|im_end|>"),
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ),
    Format(
        "Llama 3",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
        "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    ),
    Format(
        "Gemma",
        ("<start_of_turn>", "<end_of_turn>"),
        "{% set ns = namespace(system='') %}{% for m in messages %}"
        "{% if m.role == 'system' %}{% set ns.system = ns.system ~ m.content ~ '\n\n' %}{% else %}"
        "<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}\n"
        "{% if m.role == 'user' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}"
        "{{ m.content | trim }}<end_of_turn>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    ),
    Format(
        "Phi",
        ("<|user|>", "<|assistant|>", "<|end|>"),
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    ),
    Format(
        "DeepSeek",
        ("<｜User｜>", "<｜Assistant｜>"),
        "{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}"
        "{% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}{{ eos_token }}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<｜Assistant｜>{% endif %}",
    ),
    Format(
        "Mistral",
        ("[INST]", "[/INST]"),
        "{% set ns = namespace(system='') %}{% for m in messages %}"
        "{% if m.role == 'system' %}{% set ns.system = ns.system ~ m.content ~ '\n\n' %}"
        "{% elif m.role == 'user' %}[INST] {{ ns.system }}{{ m.content }}[/INST]{% set ns.system = '' %}"
        "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    ),
)

PLAIN = Format(
    "plain text",
    (),
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}\n\n"
    "{% else %}{{ 'User' if m.role == 'user' else 'Assistant' }}: {{ m.content }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}",
    stop=("\nUser:",),
)
