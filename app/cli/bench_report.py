"""The results of `slipstream bench`, as one JSON object and as lines for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.cli.as_json import model_json, speculation_json
from app.engine.benchmark import LEAST_TOKENS, Mode, Results, Settings, Spread
from app.engine.ideal import LEAST_TESTED, Ideal, MeasuredAcceptance, MeasuredCosts, ideal
from app.engine.protocol import PairLoaded
from app.engine.rounds import DrafterKind, Round

_AS_FAST = 0.02  # differences below this are not worth a verdict


def report(
    results: Results, modes: Sequence[Mode], loaded: PairLoaded, settings: Settings, *, is_complete: bool
) -> dict[str, Any]:
    """The contract of DESIGN, section 5. What could not be measured is null."""
    names = [mode.name for mode in modes if results.of(mode.name)]
    costs = MeasuredCosts.of(r for run in results.runs for r in run.rounds)
    best, source = _ideal(results, modes, costs, has_draft=loaded.draft is not None)
    auto = results.speedups("auto")
    return {
        "target": model_json(loaded.target),
        "draft": model_json(loaded.draft) if loaded.draft else None,
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "seed": settings.seed,
        "verify": settings.verify,
        "prompts": len({run.step.prompt.name for run in results.runs}),
        "complete": is_complete,
        "modes": {
            name: {
                "tokens_per_s": _spread(results.speeds(name)),
                "speedup": _spread(results.speedups(name)),
                "speculation": speculation_json(results.speculation(name)),
                "answers": sum(run.is_measured for run in results.of(name)),
            }
            for name in names
        },
        "classes": {
            kind: {
                name: {
                    "tokens_per_s": _median(results.speeds(name, kind)),
                    "speedup": _median(results.speedups(name, kind)),
                }
                for name in names
            }
            for kind in results.kinds
        },
        "costs": {"target_ms": {str(n): ms for n, ms in costs.target_ms.items()}, "draft_ms": costs.draft_ms},
        "ideal_speedup": best.speedup if best else None,
        "efficiency": auto.median / best.speedup if auto and best else None,
        "ideal": source | {"draft_length": best.draft_length, "by_length": best.by_length} if best else None,
        "notes": _notes(results, names, costs, best, source),
    }


def _spread(spread: Spread | None) -> dict[str, float | None]:
    return spread._asdict() if spread else dict.fromkeys(Spread._fields)


def _median(spread: Spread | None) -> float | None:
    return spread.median if spread else None


# -- the ideal ----------------------------------------------------------------------------------------------------


def _ideal(
    results: Results, modes: Sequence[Mode], costs: MeasuredCosts, *, has_draft: bool
) -> tuple[Ideal | None, dict[str, Any]]:
    """The better ideal of the two drafters, and what its acceptance was measured on."""
    found: list[tuple[Ideal, dict[str, Any]]] = []
    for kind in (DrafterKind.model, DrafterKind.lookup):
        sources = _sources(modes, kind, has_draft=has_draft)
        by_prompt: dict[str, list[Round]] = {}
        for run in (run for name in sources for run in results.of(name)):
            if run.drafter in (kind, DrafterKind.chained):
                by_prompt.setdefault(run.step.prompt.name, []).extend(
                    r for r in run.rounds if r.drafter in (kind, DrafterKind.none)
                )
        acceptances = [MeasuredAcceptance.of(rounds) for rounds in by_prompt.values()]
        best = ideal(costs, acceptances, is_lookup=kind is DrafterKind.lookup)
        if best:
            positions = max(acceptance.measured_positions for acceptance in acceptances)
            found.append((best, {"drafter": kind, "acceptance_from": sources, "measured_positions": positions}))
    return max(found, key=lambda pair: pair[0].speedup, default=(None, {}))


def _sources(modes: Sequence[Mode], kind: DrafterKind, *, has_draft: bool) -> list[str]:
    """The modes that show how a drafter fares: probes, whose length nobody chose, where there are any."""
    if probes := [mode.name for mode in modes if mode.is_probe and mode.drafter == kind]:
        return probes
    if any(mode.name == kind for mode in modes):
        return [str(kind)]
    return ["auto"] if has_draft == (kind is DrafterKind.model) else []


def _notes(
    results: Results, names: Sequence[str], costs: MeasuredCosts, best: Ideal | None, source: dict[str, Any]
) -> list[str]:
    """What a reader must know before believing the figures, in sentences."""
    notes = []
    if short := results.too_short:
        which = ", ".join(f"{run.step.prompt.name} ({run.step.mode.name})" for run in short)
        notes.append(f"Answers of fewer than {LEAST_TOKENS} tokens have no speed here: {which}.")
    if idle := [name for name in names if name != "plain" and not results.speculation(name).drafted]:
        notes.append(
            f"No draft was made in: {', '.join(idle)}. What sets these apart from plain is the machine's noise."
        )
    if best is None:
        return notes
    longest = len(best.by_length) - 1
    notes.append(f"The ideal is the best of the fixed draft lengths 0 to {longest}; no longer one was measured.")
    if between := [n for n in range(1, longest + 2) if n not in costs.target_ms]:
        sizes = ", ".join(map(str, between))
        notes.append(f"Passes over {sizes} tokens were not measured: their cost is taken from their neighbours'.")
    if (known := source["measured_positions"]) < longest:
        which = f"Behind position {known} of a draft" if known else "At each position of a draft"
        notes.append(
            f"{which}, fewer than {LEAST_TESTED} tokens were tested on any prompt: there the acceptance of all "
            "positions together stands in (a geometric tail)."
        )
    if not source["acceptance_from"][0].startswith("length"):
        notes.append(
            "Acceptance was measured on drafts whose length pacing chose, which flatters the ideal. "
            "Fixed lengths measure it better: --lengths 1,2,4,8."
        )
    return notes


# -- for people ---------------------------------------------------------------------------------------------------


def lines(found: dict[str, Any]) -> list[str]:
    """The report in lines: a table of the modes, one of the kinds of prompt, and sentences."""
    draft = f", draft {Path(found['draft']['file']).name}" if found["draft"] else ""
    count = found["prompts"]
    head = (
        f"Target {Path(found['target']['file']).name}{draft}. {count} prompt{'s' * (count != 1)}, "
        f"{found['max_tokens']} tokens each, temperature {found['temperature']:g}."
    )
    kinds = []
    if len(found["classes"]) > 1:
        kinds = ["", *_table([["speed-up", *found["classes"]], *_kind_rows(found)])]
    return [head, "", *_table(_mode_rows(found)), *kinds, "", verdict(found), *_cost_lines(found), *found["notes"]]


def _mode_rows(found: dict[str, Any]) -> list[list[str]]:
    rows = [["mode", "tokens/s", "speed-up", "(min to max)", "acceptance", "mean length"]]
    for name, mode in found["modes"].items():
        speed, speedup, speculation = mode["tokens_per_s"], mode["speedup"], mode["speculation"]
        spread = "–" if speedup["median"] is None else f"({speedup['min']:.2f} to {speedup['max']:.2f})"
        rate = speculation["draft_acceptance_rate"]
        rows.append(
            [
                name,
                _shown(speed["median"], ".1f"),
                _shown(speedup["median"], ".2f"),
                spread if name != "plain" else "",
                _shown(rate, ".0%"),
                _shown(speculation["mean_acceptance_length"], ".2f"),
            ]
        )
    return rows


def _kind_rows(found: dict[str, Any]) -> list[list[str]]:
    return [
        [name, *(_shown(kind[name]["speedup"], ".2f") for kind in found["classes"].values())]
        for name in found["modes"]
        if name != "plain"
    ]


def verdict(found: dict[str, Any]) -> str:
    """The result in one sentence."""
    medians = {
        name: mode["speedup"]["median"]
        for name, mode in found["modes"].items()
        if name != "plain" and mode["speedup"]["median"] is not None
    }
    if not medians:
        return "There is no speed-up to report: no answer could be compared with a plain one of the same prompt."
    fastest = max(medians, key=medians.__getitem__)
    named = "auto" if "auto" in medians else fastest
    here = "on this pair and machine" if found["draft"] else "with this model on this machine"
    if medians[named] < 1 - _AS_FAST and medians[fastest] <= 1 + _AS_FAST:
        return f"Plain is fastest here: {named} is {medians[named]:.2f} times as fast {here}."
    if abs(medians[named] - 1) <= _AS_FAST:
        sentence = f"{named} is as fast as plain {here}"
    else:
        sentence = f"{named} is {medians[named]:.2f} times as fast as plain {here}"
    if medians[fastest] > medians[named] + _AS_FAST:
        sentence += f"; {fastest} is the fastest, {medians[fastest]:.2f} times"
    return f"{sentence}."


def _cost_lines(found: dict[str, Any]) -> list[str]:
    shown = []
    costs = found["costs"]
    if costs["target_ms"]:
        passes = ", ".join(f"{n}: {ms:.1f}" for n, ms in costs["target_ms"].items())
        draft = f"; a draft token: {costs['draft_ms']:.1f} ms" if costs["draft_ms"] is not None else ""
        shown.append(f"A target pass by its number of tokens, in ms: {passes}{draft}.")
    if best := found["ideal"]:
        length, speedup = best["draft_length"], found["ideal_speedup"]
        drafter = "draft model" if best["drafter"] == DrafterKind.model else "lookup"
        sentence = (
            f"The ideal is 1.00: by these costs and this acceptance, no fixed draft length of the {drafter} pays"
            if length == 0
            else f"The ideal is {speedup:.2f}, with {length} draft token{'s' * (length != 1)} a round by the {drafter}"
        )
        reached = f"; auto reaches {found['efficiency']:.0%} of it" if found["efficiency"] is not None else ""
        shown.append(f"{sentence}{reached}.")
    return shown


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns aligned: the first to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
