"""Tiny GGUF files for unit tests: random models that decode in milliseconds, and files broken in one known way.

They are deterministic. Their control tokens never win a draw, so an answer ends where the test ends it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, TokenType
from gguf.quants import quantize
from numpy.typing import NDArray

from tests.support.smol import Maker

CONTEXT_LENGTH = 2048
SLIDING_WINDOW = 32  # tokens, of tiny-swa
OTHER_TOKEN_ID = 49_000  # the id whose text differs in tiny-other
EXTRA_TOKENS = 100
STARTER_TOKENS, LARGE_VOCABULARY = 49_152, 151_936  # ids that tiny-bigger has more than tiny-same
TEMPLATE_COMPLAINT = "this template accepts no conversation"  # what broken-template raises

_BOS, _EOS = 1, 2
_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Vocabulary:
    """A byte-level BPE vocabulary whose control tokens come first: 0 end of text, 1 start and 2 end of a turn."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    chat_template: str = _CHATML

    @property
    def controls(self) -> int:
        return self.types.count(TokenType.CONTROL)

    def write(self, writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(_BOS)
        writer.add_eos_token_id(_EOS)
        writer.add_pad_token_id(_EOS)
        writer.add_add_bos_token(False)
        writer.add_add_space_prefix(False)
        writer.add_chat_template(self.chat_template)


@cache
def starter_vocabulary(starter: Path) -> Vocabulary:
    """The vocabulary and template of a real file. Cached: its 98,000 strings take two seconds to read."""
    fields = GGUFReader(starter).fields
    return Vocabulary(
        tokens=tuple(fields["tokenizer.ggml.tokens"].contents()),
        types=tuple(fields["tokenizer.ggml.token_type"].contents()),
        merges=tuple(fields["tokenizer.ggml.merges"].contents()),
        chat_template=fields["tokenizer.chat_template"].contents(),
    )


def small_vocabulary(starter: Path, size: int = 512) -> Vocabulary:
    """Three control tokens, every byte, and the starter's first merges, which need only bytes and each other."""
    controls = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    byte_tokens = tuple(_byte_characters())
    merges = starter_vocabulary(starter).merges[: size - len(controls) - len(byte_tokens)]
    tokens = (*controls, *byte_tokens, *(merge.replace(" ", "") for merge in merges))
    types = [TokenType.CONTROL] * len(controls) + [TokenType.NORMAL] * (len(tokens) - len(controls))
    return Vocabulary(tokens, tuple(types), merges)


def _byte_characters() -> Iterator[str]:
    """GPT-2's printable stand-in for each byte: itself if it can be seen, else the next code point from 256 on."""
    stand_in = 256
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            yield chr(byte)
        else:
            yield chr(stand_in)
            stand_in += 1


def _random(name: str, shape: tuple[int, ...], std: float, seed: int) -> Array:
    """Normal values that depend on the tensor's name and the seed only.

    Seeds above 0 lean on seed 0, so that two models of one shape agree on about half of their tokens, as real pairs do.
    """

    def draw(of: int) -> Array:
        return np.random.default_rng([of, zlib.crc32(name.encode())]).normal(0, std, shape).astype(np.float32)

    return draw(0) if seed == 0 else np.float32(0.995) * draw(0) + np.float32(0.1) * draw(seed)


class _Model:
    """A GGUF under construction. Matrices are Q8_0: quantised targets decode the same in batches of any length."""

    def __init__(self, path: Path, architecture: str, seed: int = 0) -> None:
        self.writer = GGUFWriter(path, architecture)
        self._path = path
        self._seed = seed
        self.writer.add_name(f"Tiny {architecture} {seed}")
        self.writer.add_context_length(CONTEXT_LENGTH)

    def matrix(self, name: str, rows: int, columns: int, gain: float = 1.0, silent_rows: int = 0) -> None:
        """A matrix that turns unit input into output of deviation `gain`; its first `silent_rows` are zero."""
        values = _random(name, (rows, columns), gain / columns**0.5, self._seed)
        values[:silent_rows] = 0
        packed = quantize(values, GGMLQuantizationType.Q8_0)
        self.writer.add_tensor(f"{name}.weight", packed, raw_dtype=GGMLQuantizationType.Q8_0)

    def vector(self, name: str, size: int, value: float = 1.0) -> None:
        self.writer.add_tensor(name, np.full(size, value, np.float32))

    def kernel(self, name: str, channels: int, width: int) -> None:
        """A short convolution over time, in plain numbers: its rows are shorter than a block of Q8_0."""
        self.writer.add_tensor(name, _random(name, (channels, width), width**-0.5, self._seed))

    def save(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write_llama(path: Path, vocabulary: Vocabulary, seed: int = 0) -> None:
    """Two layers, 64 wide, two heads of 32 over one key-value head."""
    width, inner, layers = 64, 128, 2
    model = _Model(path, "llama", seed)
    writer = model.writer
    writer.add_block_count(layers)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary.tokens))
    vocabulary.write(writer)
    _write_ends(model, vocabulary, width)
    for i in range(layers):
        block = f"blk.{i}."
        model.vector(f"{block}attn_norm.weight", width)
        model.vector(f"{block}ffn_norm.weight", width)
        _write_layer(model, block, width, inner, query=64, key=32)
    model.save()


def write_gemma3(path: Path, vocabulary: Vocabulary, seed: int = 0) -> None:
    """Seven layers, of which every sixth sees everything and the others the last `SLIDING_WINDOW` tokens."""
    width, inner, layers, head = 64, 128, 7, 32
    model = _Model(path, "gemma3", seed)
    writer = model.writer
    writer.add_block_count(layers)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(SLIDING_WINDOW)
    vocabulary.write(writer)
    _write_ends(model, vocabulary, width)
    for i in range(layers):
        block = f"blk.{i}."
        for norm in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            model.vector(f"{block}{norm}.weight", width)
        for norm in ("attn_q_norm", "attn_k_norm"):
            model.vector(f"{block}{norm}.weight", head)
        _write_layer(model, block, width, inner, query=64, key=head)
    model.save()


def write_mamba(path: Path, vocabulary: Vocabulary, seed: int = 0) -> None:
    """Two layers of selective state spaces and no attention: a recurrent memory, of one size for any text."""
    width, inner, layers, state, rank, kernel = 64, 128, 2, 16, 32, 4
    model = _Model(path, "mamba", seed)
    writer = model.writer
    writer.add_block_count(layers)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    writer.add_layer_norm_rms_eps(1e-5)
    vocabulary.write(writer)
    _write_ends(model, vocabulary, width)
    for i in range(layers):
        block = f"blk.{i}."
        model.vector(f"{block}attn_norm.weight", width)
        model.matrix(f"{block}ssm_in", 2 * inner, width, gain=2)
        model.kernel(f"{block}ssm_conv1d.weight", inner, kernel)
        model.vector(f"{block}ssm_conv1d.bias", inner, 0)
        model.matrix(f"{block}ssm_x", rank + 2 * state, inner, gain=2)
        model.matrix(f"{block}ssm_dt", inner, rank)
        model.vector(f"{block}ssm_dt.bias", inner, -1)
        # Each state forgets at a pace of its own, from hardly to at once.
        writer.add_tensor(f"{block}ssm_a", np.tile(-np.geomspace(0.02, 4, state, dtype=np.float32), (inner, 1)))
        model.vector(f"{block}ssm_d", inner)
        model.matrix(f"{block}ssm_out", width, inner, gain=2)
    model.save()


def write_lfm2(path: Path, vocabulary: Vocabulary, seed: int = 0, *, window: int | None = None) -> None:
    """Two layers of short convolutions around one of attention: a hybrid memory, which llama.cpp keeps snapshots of.

    With a `window`, in tokens, the attention sees no further back.
    """
    width, inner, kernel, head = 64, 128, 3, 32
    key_value_heads = (0, 1, 0)  # per layer; none makes it a convolution
    model = _Model(path, "lfm2", seed)
    writer = model.writer
    writer.add_block_count(len(key_value_heads))
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(width // head)
    writer.add_head_count_kv(key_value_heads)
    writer.add_shortconv_l_cache(kernel)
    if window:
        writer.add_sliding_window(window)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary.tokens))
    vocabulary.write(writer)
    _write_ends(model, vocabulary, width, norm="token_embd_norm")
    for i, heads in enumerate(key_value_heads):
        block = f"blk.{i}."
        model.vector(f"{block}attn_norm.weight", width)
        model.vector(f"{block}ffn_norm.weight", width)
        _write_feed_forward(model, block, width, inner)
        if heads:
            _write_attention(model, block, width, query=width, key=heads * head)
            for norm in ("attn_q_norm", "attn_k_norm"):
                model.vector(f"{block}{norm}.weight", head)
        else:
            model.matrix(f"{block}shortconv.in_proj", 3 * width, width, gain=2)
            model.kernel(f"{block}shortconv.conv.weight", width, kernel)
            model.matrix(f"{block}shortconv.out_proj", width, width)
    model.save()


def _write_ends(model: _Model, vocabulary: Vocabulary, width: int, norm: str = "output_norm") -> None:
    model.matrix("token_embd", len(vocabulary.tokens), width, gain=width**0.5)
    model.vector(f"{norm}.weight", width)
    model.matrix("output", len(vocabulary.tokens), width, gain=4.0, silent_rows=vocabulary.controls)


def _write_layer(model: _Model, block: str, width: int, inner: int, query: int, key: int) -> None:
    _write_attention(model, block, width, query, key)
    _write_feed_forward(model, block, width, inner)


def _write_attention(model: _Model, block: str, width: int, query: int, key: int) -> None:
    model.matrix(f"{block}attn_q", query, width, gain=2)
    model.matrix(f"{block}attn_k", key, width, gain=2)
    model.matrix(f"{block}attn_v", key, width)
    model.matrix(f"{block}attn_output", width, query)


def _write_feed_forward(model: _Model, block: str, width: int, inner: int) -> None:
    model.matrix(f"{block}ffn_gate", inner, width)
    model.matrix(f"{block}ffn_up", inner, width)
    model.matrix(f"{block}ffn_down", width, inner)


def write_bert(path: Path) -> None:
    """An embedding model of one layer: it loads, and has no memory to generate with."""
    width, inner = 64, 128
    letters = tuple("\N{LOWER ONE EIGHTH BLOCK}" + chr(code) for code in range(ord("a"), ord("z") + 1))
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters)
    model = _Model(path, "bert")
    writer = model.writer
    writer.add_block_count(1)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 5 + [TokenType.NORMAL] * 26)
    writer.add_token_type_count(2)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    model.matrix("token_embd", len(tokens), width)
    writer.add_tensor("position_embd.weight", np.zeros((CONTEXT_LENGTH, width), np.float32))
    writer.add_tensor("token_types.weight", np.zeros((2, width), np.float32))
    for norm in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        model.vector(f"{norm}.weight", width)
        model.vector(f"{norm}.bias", width, 0)
    sizes = {"attn_q": (width, width), "attn_k": (width, width), "attn_v": (width, width)}
    sizes |= {"attn_output": (width, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}
    for name, (rows, columns) in sizes.items():
        model.matrix(f"blk.0.{name}", rows, columns)
        model.vector(f"blk.0.{name}.bias", rows, 0)
    model.save()


def write_mmproj(path: Path) -> None:
    """A picture projector, which stands beside chat models in many folders and is none."""
    model = _Model(path, "clip")
    model.writer.add_type("mmproj")
    model.writer.add_bool("clip.has_vision_encoder", True)
    model.matrix("v.patch_embd", 64, 64)
    model.save()


def write_adapter(path: Path) -> None:
    """A LoRA adapter: changes to another model's weights, under that model's architecture."""
    model = _Model(path, "llama")
    model.writer.add_type("adapter")
    model.writer.add_string("adapter.type", "lora")
    model.writer.add_float32("adapter.lora.alpha", 16.0)
    for part, shape in (("lora_a", (4, 64)), ("lora_b", (64, 4))):
        model.kernel(f"blk.0.attn_q.weight.{part}", *shape)
    model.save()


def write_imatrix(path: Path) -> None:
    """An importance matrix, which quantising tools leave beside the models they make. It names no architecture."""
    writer = GGUFWriter(path, "")
    writer.add_type("imatrix")
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_tensor("blk.0.attn_q.weight.in_sum2", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_sidecar(architecture: str, path: Path) -> None:
    """A draft head that reads the inner state of one target and is no model by itself."""
    model = _Model(path, architecture)
    model.writer.add_block_count(1)
    model.writer.add_embedding_length(64)
    model.matrix("fc", 64, 192)
    model.save()


def _vocabulary_only(starter: Path, out: Path) -> None:
    model = _Model(out, "llama")
    small_vocabulary(starter).write(model.writer)
    model.save()


def _same(starter: Path, out: Path, seed: int = 0) -> None:
    write_llama(out, starter_vocabulary(starter), seed)


def _small(starter: Path, out: Path, seed: int = 0) -> None:
    write_llama(out, small_vocabulary(starter), seed)


def _other(starter: Path, out: Path) -> None:
    vocabulary = starter_vocabulary(starter)
    tokens = list(vocabulary.tokens)
    tokens[OTHER_TOKEN_ID] += "x"
    write_llama(out, replace(vocabulary, tokens=tuple(tokens)))


def _bigger(starter: Path, out: Path, extra: int = EXTRA_TOKENS, seed: int = 0) -> None:
    vocabulary = starter_vocabulary(starter)
    padding = tuple(f"[PAD{len(vocabulary.tokens) + i}]" for i in range(extra))
    unused = (TokenType.UNUSED,) * extra
    write_llama(out, replace(vocabulary, tokens=vocabulary.tokens + padding, types=vocabulary.types + unused), seed)


def _small_of(write: Callable[[Path, Vocabulary, int], None], starter: Path, out: Path, seed: int = 0) -> None:
    write(out, small_vocabulary(starter), seed)


def _with_template(template: str, starter: Path, out: Path) -> None:
    write_llama(out, replace(starter_vocabulary(starter), chat_template=template))


def _damaged(damage: Callable[[bytes], bytes], starter: Path, out: Path) -> None:
    _small(starter, out)
    out.write_bytes(damage(out.read_bytes()))


def _content(content: bytes, _starter: Path, out: Path) -> None:
    out.write_bytes(content)


def _without_vocabulary(write: Callable[[Path], None], _starter: Path, out: Path) -> None:
    write(out)


TINY: dict[str, Maker] = {
    "tiny-same": _same,
    "tiny-same-2": partial(_same, seed=2),
    "tiny-small": _small,
    "tiny-small-2": partial(_small, seed=2),
    "tiny-other": _other,
    "tiny-bigger": _bigger,
    "tiny-152k": partial(_bigger, extra=LARGE_VOCABULARY - STARTER_TOKENS),
    "tiny-152k-2": partial(_bigger, extra=LARGE_VOCABULARY - STARTER_TOKENS, seed=2),
    "tiny-swa": partial(_small_of, write_gemma3),
    "tiny-swa-2": partial(_small_of, write_gemma3, seed=2),
    "tiny-mamba": partial(_small_of, write_mamba),
    "tiny-mamba-2": partial(_small_of, write_mamba, seed=2),
    "tiny-lfm2": partial(_small_of, write_lfm2),
    "tiny-lfm2-2": partial(_small_of, write_lfm2, seed=2),
    "tiny-lfm2-swa": partial(_small_of, partial(write_lfm2, window=SLIDING_WINDOW)),
    "tiny-lfm2-swa-2": partial(_small_of, partial(write_lfm2, window=SLIDING_WINDOW), seed=2),
    "broken-truncated": partial(_damaged, lambda data: data[: len(data) * 3 // 4]),
    "broken-header": partial(_damaged, lambda data: data[:1000]),
    "broken-version": partial(_damaged, lambda data: data[:4] + (99).to_bytes(4, "little") + data[8:]),
    "broken-text": partial(_content, b"This was a model once.\n" * 40),
    "broken-mmproj": partial(_without_vocabulary, write_mmproj),
    "broken-adapter": partial(_without_vocabulary, write_adapter),
    "broken-imatrix": partial(_without_vocabulary, write_imatrix),
    "broken-vocabulary": _vocabulary_only,
    "broken-eagle3": partial(_without_vocabulary, partial(write_sidecar, "eagle3")),
    "broken-dflash": partial(_without_vocabulary, partial(write_sidecar, "dflash")),
    "broken-template": partial(_with_template, "{{ raise_exception('" + TEMPLATE_COMPLAINT + "') }}"),
    "template-syntax": partial(_with_template, "{% for message in messages %}{{ message['content'] }"),
    "embedding-model": partial(_without_vocabulary, write_bert),
    "empty": partial(_content, b""),
}
