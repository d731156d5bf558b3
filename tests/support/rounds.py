"""Rounds as the engine makes them, for whatever shows or stores them."""

from __future__ import annotations

from app.engine.rounds import DrafterKind, Round, RoundTimes, Token, TokenSource


def make_round(
    index: int,
    accepted: int,
    rejected: int = 0,
    *,
    discarded: int = 0,
    drafter: DrafterKind = DrafterKind.model,
    text: str = " sea",
) -> Round:
    """Accepted tokens, then what the target drew, unless the answer ended before it (then drafts are discarded)."""
    tokens = [Token(7, TokenSource.draft, text)] * accepted
    if not discarded:
        drawn = TokenSource.recovered if rejected else TokenSource.bonus if accepted else TokenSource.plain
        tokens.append(Token(8, drawn, text))
    return Round(
        index,
        drafter,
        tuple(tokens),
        accepted + rejected + discarded,
        accepted,
        rejected,
        discarded,
        RoundTimes(0.015 if accepted + rejected else 0.0, 0.051, 0.004),
        rejected_texts=(text,) * rejected,
    )
