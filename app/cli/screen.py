"""An answer on a terminal: text as it comes, coloured by source where the terminal has colours, then one line of facts.

The text goes to standard output and everything else to standard error, so that a pipe gets the answer alone.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from app.engine.protocol import Event, GenerationFinished, GenerationStarted, RoundFinished
from app.engine.rounds import DrafterKind, Span, StopReason, TokenSource
from app.engine.stats import SpeculationStats

_RESET, _FAINT = "\x1b[0m", "\x1b[2m"
_COLOURS = {
    TokenSource.draft: "\x1b[32m",  # green
    TokenSource.recovered: "\x1b[4;33m",  # underlined, as in the window
    TokenSource.bonus: "\x1b[35m",
    TokenSource.plain: "",
}
_LOOKUP = "\x1b[34m"

_ENDS = {
    StopReason.max_tokens: "stopped at the token limit",
    StopReason.context_full: "stopped because the context is full",
    StopReason.stop_string: "stopped at a stop string",
    StopReason.cancelled: "stopped",
    StopReason.failed: "not finished",
}


class Screen:
    """Shows the events of one answer. A quiet one shows nothing but notes about the prompt."""

    def __init__(self, *, is_quiet: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._is_quiet = is_quiet
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._has_colours = self._out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._in_reasoning = False
        self._at_line_start = True

    def show(self, event: Event) -> None:
        match event:
            case GenerationStarted():
                for note in event.notes:
                    print(f"slipstream: {note}", file=self._err)
            case RoundFinished() | GenerationFinished():
                if not self._is_quiet:
                    self._write(event.spans)

    def end(self, stats: SpeculationStats, finished: GenerationFinished | None) -> None:
        """Close the text and print the line of facts."""
        if self._is_quiet:
            return
        if not self._at_line_start:
            self._out.write("\n")
        self._out.flush()
        if finished is None or not finished.answer_tokens:
            return
        colours = self._err.isatty() and "NO_COLOR" not in os.environ
        line = summary(stats, finished)
        print(f"{_FAINT}{line}{_RESET}" if colours else line, file=self._err)

    def _write(self, spans: tuple[Span, ...]) -> None:
        for span in spans:
            text = span.text
            if span.is_reasoning != self._in_reasoning:
                text = f"\n{text}" if not self._at_line_start else text
                self._in_reasoning = span.is_reasoning
            if self._has_colours:
                colour = (
                    _LOOKUP
                    if span.source is TokenSource.draft and span.drafter is DrafterKind.lookup
                    else _COLOURS[span.source]
                )
                text = f"{_FAINT if span.is_reasoning else ''}{colour}{text}{_RESET}"
            self._out.write(text)
            self._at_line_start = span.text.endswith("\n")
        self._out.flush()


def summary(stats: SpeculationStats, finished: GenerationFinished) -> str:
    """Speed, acceptance and size of an answer; what is unknown is left out."""
    facts = []
    if finished.timing.tokens_per_s is not None:
        facts.append(f"{finished.timing.tokens_per_s:.1f} tokens/s")
    if stats.draft_acceptance_rate is not None:
        facts.append(f"{stats.draft_acceptance_rate:.0%} of draft tokens accepted")
        facts.append(f"{stats.mean_acceptance_length:.2f} tokens a round with a draft")
    facts.append(f"{finished.answer_tokens} tokens")
    facts.append(f"seed {finished.seed}")
    if finished.stop_reason in _ENDS:
        facts.append(_ENDS[finished.stop_reason])
    return " · ".join(facts)
