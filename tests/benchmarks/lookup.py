"""What a round of lookup costs: to propose behind a long text and to take in what was committed.

    python -m tests.benchmarks.lookup [--rounds 500]

Prints the median over rounds of a full proposal and a commit of five tokens, what indexing the text took before, and
the memory that the index grew by. The engine's bound is 0.1 ms a round behind 32k tokens.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import tracemalloc

from app.engine.lookup import LookupDrafter
from app.engine.protocol import MAX_DRAFT_LENGTH

COMMITTED = 5


def mixed(length: int) -> list[int]:
    """Rare and frequent tokens, as in a language, with passages that are quoted later."""
    rng = random.Random(length)
    text: list[int] = []
    while len(text) < length:
        if text and rng.random() < 0.2:
            start = rng.randrange(len(text))
            text += text[start : start + rng.randrange(4, 60)]
        else:
            text += [min(int(rng.paretovariate(0.6)), 49_151) for _ in range(20)]
    return text[:length]


def repetitive(length: int) -> list[int]:
    """One paragraph again and again: every place has many others, and all matches are long."""
    paragraph = mixed(50)
    return [paragraph[i % len(paragraph)] for i in range(length)]


def constant(length: int) -> list[int]:
    return [7] * length


def measure(text: list[int], rounds: int) -> tuple[float, float]:
    """Seconds to index all but the end of `text`, and the median of the rounds that write the end."""
    before = len(text) - rounds * COMMITTED
    drafter = LookupDrafter()
    start = time.perf_counter()
    drafter.begin(text[:before])
    indexed = time.perf_counter() - start
    times = []
    for at in range(before, len(text), COMMITTED):
        tokens = text[at : at + COMMITTED]
        start = time.perf_counter()
        drafter.propose(MAX_DRAFT_LENGTH)
        drafter.commit(tokens, 0)
        times.append(time.perf_counter() - start)
    return indexed, statistics.median(times)


def grown(text: list[int]) -> int:
    """Bytes that the index of `text` holds beyond an empty one's."""
    drafter = LookupDrafter()
    tracemalloc.start()
    drafter.begin(text)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    rounds = parser.parse_args().rounds
    for kind in (mixed, repetitive, constant):
        for length in (1024, 8192, 32_768):
            indexed, median = measure(kind(length + rounds * COMMITTED), rounds)
            print(
                f"{kind.__name__:>10} {length:>6} tokens: {1000 * median:.4f} ms a round, "
                f"indexed in {1000 * indexed:6.1f} ms, {grown(kind(length)) / length:4.1f} bytes a token"
            )


if __name__ == "__main__":
    main()
