"""What a round costs beside its two decodes: sampling, verifying, bookkeeping and sending, in the real worker.

    python -m tests.benchmarks.rounds [--tokens 200] [--models FOLDER]

Prints the median over rounds with a full draft of three tokens. The tiny models speak nonsense at the cost that their
vocabularies have for us; the real pair shows what the same work takes between decodes that stream real weights.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from app.chat import Message, ModelPair, Role
from app.engine import Engine, GenerationRequest, LoadOptions, SamplingParams, SpeculationParams
from app.engine.protocol import RoundFinished
from tests.support.models import Models, cache_folder

PROMPT = "Tell the story of a lighthouse keeper who counts the steps of the tower every evening."
DRAFT_LENGTH = 3


def overheads(engine: Engine, pair: ModelPair, sampling: SamplingParams, tokens: int) -> list[float]:
    """Milliseconds beside the decodes, for each round with a full draft."""
    engine.load(pair, LoadOptions(context=1024, threads=1))
    request = GenerationRequest(
        (Message.of(Role.user, PROMPT),),
        sampling,
        SpeculationParams("model", DRAFT_LENGTH),
        max_tokens=tokens,
    )
    return [
        1000 * event.round.times.sample
        for event in engine.generate(request)
        if isinstance(event, RoundFinished) and event.round.drafted == DRAFT_LENGTH
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--models", type=Path)
    options = parser.parse_args()
    files = Models(options.models or cache_folder())
    pairs = {
        "49k, real": ModelPair(files.path("smol-q8"), files.path("smol-q4")),
        "49k": ModelPair(files.path("tiny-same"), files.path("tiny-same-2")),
        "152k": ModelPair(files.path("tiny-152k"), files.path("tiny-152k-2")),
    }
    settings = {
        "temperature 0": SamplingParams(temperature=0),
        "temperature 0.8, top-k 40": SamplingParams(temperature=0.8, top_k=40, seed=1),
        "temperature 0.8, all filters": SamplingParams(temperature=0.8, repeat_penalty=1.1, seed=1),
        "temperature 0.8, no top-k": SamplingParams(temperature=0.8, top_k=0, seed=1),
    }
    with Engine() as engine:
        for size, pair in pairs.items():
            for name, sampling in settings.items():
                found = overheads(engine, pair, sampling, options.tokens)
                print(f"{size:>9} {name:<30} median {statistics.median(found):6.3f} ms  over {len(found)} rounds")


if __name__ == "__main__":
    main()
