"""Random numbers that are a function of their place alone: of a seed, a position in the text and a token.

A number that depends on nothing else is the same with any drafter, any draft length, or none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from app.engine.distribution import Floats, Ids

_MASK = (1 << 64) - 1
_STEP = np.uint64(0x9E3779B97F4A7C15)
_NO_TOKEN = np.array([-1])


def uniforms(seed: int, position: int, ids: Ids) -> Floats:
    """Uniform in (0, 1), shape of `ids`: splitmix64 over seed, position and each id."""
    with np.errstate(over="ignore"):
        mixed = _mix(np.uint64(seed & _MASK) + np.uint64(position) * _STEP)
        mixed = _mix(mixed ^ (ids.astype(np.uint64) + np.uint64(1)) * _STEP)
    uniform: Floats = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return uniform


def gumbel_noise(seed: int, position: int, ids: Ids) -> Floats:
    """Standard Gumbel noise, shape of `ids`."""
    noise: Floats = -np.log(-np.log(uniforms(seed, position, ids)))
    return noise


def coin(seed: int, position: int) -> float:
    """One uniform number in (0, 1) for a position, independent of the noise of every token there."""
    return float(uniforms(seed, position, _NO_TOKEN)[0])


def _mix(x: Any) -> Any:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
