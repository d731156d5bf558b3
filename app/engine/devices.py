"""What this machine can compute with: cores, memory, processor features."""

from __future__ import annotations

import os

import psutil


def physical_cores() -> int:
    """Cores this process may use; hyper-threads count once."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def default_threads() -> int:
    """One core is left for the window: two pools of threads spinning on the same cores are ruinous."""
    return max(1, physical_cores() - 1)


def free_memory() -> int:
    """Bytes of RAM that can be had without swapping. llama.cpp reports the total as free."""
    return int(psutil.virtual_memory().available)


def total_memory() -> int:
    return int(psutil.virtual_memory().total)


def processor_features(system_info: str) -> list[str]:
    """What of the processor this build uses, from llama.cpp's "CPU : SSE3 = 1 | AVX2 = 1 | …"."""
    _, _, facts = system_info.partition(":")
    pairs = (fact.split("=") for fact in facts.split("|") if "=" in fact)
    return [name.strip() for name, value in pairs if value.strip() == "1"]
