"""What the target thinks of the next token, as numbers: to tell rounding from a fault where two answers differ."""

from __future__ import annotations

import numpy as np

from app.engine.loaded import LoadedPair
from app.engine.memory import evaluate, reusable_prefix
from app.engine.protocol import ScoreNext, TokenScore


def best_next(pair: LoadedPair, asked: ScoreNext) -> tuple[TokenScore, ...]:
    """The two best tokens behind `asked.answer_tokens`, the best first. Raises SlipstreamError."""
    target, vocabulary = pair.target, pair.model.vocabulary
    prompt = pair.prompts.build(asked.messages, max_tokens=asked.max_tokens)
    tokens = [*prompt.tokens, *asked.answer_tokens]
    target.rewind(reusable_prefix(target.tokens, tokens))
    evaluate(target, tokens[len(target.tokens) : -1], outputs=0)
    # The last token alone, as plain decoding evaluates it: a large batch may round differently.
    evaluate(target, tokens[-1:], outputs=1)
    logits = target.logits(0).copy()
    logits[vocabulary.suppressed] = -np.inf
    best = []
    for _ in range(2):
        token = int(logits.argmax())  # among equals the lowest id, as greedy decoding has it
        text = vocabulary.piece(token, special=True).decode(errors="replace")
        best.append(TokenScore(token, float(logits[token]), text))
        logits[token] = -np.inf
    return tuple(best)
