"""llama.cpp itself: the raw functions, the library, its devices and its log.

The only file that imports `llama_cpp`; `vocabulary`, `model` and `context` take its raw functions `L` from here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import llama_cpp.llama_cpp as L

from app.engine.protocol import Device
from app.errors import SlipstreamError

__all__ = ["CancelFlag", "L", "Library", "logits_address"]

_DEVICE_TYPES: tuple[Literal["cpu", "gpu", "igpu", "accelerator"], ...] = ("cpu", "gpu", "igpu", "accelerator")

# The binding types the result as POINTER, whose conversion to numpy costs ten times the address alone.
logits_address = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(("llama_get_logits_ith", L._lib))


class CancelFlag:
    """Set from any thread; llama.cpp sees it between two graph nodes on the CPU, and we see it between two decodes.

    The flag is a C string: empty is False. llama.cpp asks it through `strlen`, which needs no Python and no lock.
    """

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)
        self._libc = ctypes.CDLL("msvcrt" if os.name == "nt" else None)
        self.callback = L.ggml_abort_callback(ctypes.cast(self._libc.strlen, ctypes.c_void_p).value or 0)

    def set(self) -> None:
        self._text[0] = b"\x01"

    def clear(self) -> None:
        self._text[0] = b"\x00"

    def is_set(self) -> bool:
        return self._text[0] != b"\x00"

    @property
    def address(self) -> int:
        return ctypes.addressof(self._text)


class Library:
    """llama.cpp itself: started once per process. Keeps the newest log lines, from which causes are read."""

    _alive: ClassVar[list[Library]] = []  # llama.cpp calls back until the process ends, whoever forgets this object

    def __init__(self, on_abort: Callable[[str], None] = lambda text: None) -> None:
        os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # otherwise an abort forks a debugger
        self.log: deque[str] = deque(maxlen=400)
        self._on_log = L.llama_log_callback(self._keep_log)
        L.llama_log_set(self._on_log, ctypes.c_void_p(0))
        self._on_abort = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(
            lambda text: on_abort("an error inside llama.cpp: " + (text or b"").decode(errors="replace").strip())
        )
        _ggml("ggml_set_abort_callback", ctypes.c_void_p, [ctypes.c_void_p])(
            ctypes.cast(self._on_abort, ctypes.c_void_p)
        )
        L.llama_backend_init()
        Library._alive.append(self)

    def _keep_log(self, level: int, text: bytes, _data: int) -> None:
        with contextlib.suppress(Exception):  # an exception must not cross into C
            line = text.decode(errors="replace")
            if level == 5 and self.log:  # the rest of the line before
                self.log[-1] += line.rstrip("\n")
            elif line.strip():
                self.log.append(line.rstrip("\n"))

    @property
    def version(self) -> str:
        version = L.llama_version()
        return version.decode() if isinstance(version, bytes) else str(version)

    @property
    def system_info(self) -> str:
        return str(L.llama_print_system_info().decode(errors="replace")).strip()

    @property
    def supports_gpu_offload(self) -> bool:
        return bool(L.llama_supports_gpu_offload())

    @property
    def supports_rpc(self) -> bool:
        return bool(L.llama_supports_rpc())

    def devices(self) -> tuple[Device, ...]:
        """Every device of every back end, memory in bytes as the back end tells it."""
        get = _ggml("ggml_backend_dev_get", ctypes.c_void_p, [ctypes.c_size_t])
        name = _ggml("ggml_backend_dev_name", ctypes.c_char_p, [ctypes.c_void_p])
        description = _ggml("ggml_backend_dev_description", ctypes.c_char_p, [ctypes.c_void_p])
        kind = _ggml("ggml_backend_dev_type", ctypes.c_int, [ctypes.c_void_p])
        size_p = ctypes.POINTER(ctypes.c_size_t)
        memory = _ggml("ggml_backend_dev_memory", None, [ctypes.c_void_p, size_p, size_p])
        found = []
        for i in range(_ggml("ggml_backend_dev_count", ctypes.c_size_t, [])()):
            handle, free, total = get(i), ctypes.c_size_t(), ctypes.c_size_t()
            memory(handle, ctypes.byref(free), ctypes.byref(total))
            found.append(
                Device(
                    name=name(handle).decode(errors="replace"),
                    description=description(handle).decode(errors="replace").strip(),
                    type=_DEVICE_TYPES[min(kind(handle), 3)],
                    memory_free=free.value,
                    memory_total=total.value,
                )
            )
        return tuple(found)


def _ggml(name: str, restype: Any, argtypes: list[Any]) -> Any:
    """A function of ggml that the binding does not declare, from the library it has already opened."""
    handles = [L._lib]
    if os.name == "nt":  # GetProcAddress does not look into dependencies
        folder = Path(L._lib._name).parent
        handles += [ctypes.CDLL(str(folder / dll)) for dll in ("ggml.dll", "ggml-base.dll")]
    for handle in handles:
        if hasattr(handle, name):
            return ctypes.CFUNCTYPE(restype, *argtypes)((name, handle))
    raise SlipstreamError(f"This build of llama.cpp lacks {name}. Install llama-cpp-python again.")
