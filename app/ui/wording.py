"""The sentences and figures the window shows about chats, answers and pairs."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from app.engine.protocol import GenerationFinished, ModelInfo
from app.engine.rounds import StopReason
from app.engine.stats import SpeculationStats

TITLE_LENGTH = 60  # characters


def title_of(message: str) -> str:
    """A chat's title: its first message on one line, cut between words."""
    line = " ".join(message.split())
    if len(line) <= TITLE_LENGTH:
        return line
    head, _, _ = line[:TITLE_LENGTH].rpartition(" ")
    return (head or line[: TITLE_LENGTH - 1]).rstrip(" ,;:.") + "…"


def footer_of(finished: GenerationFinished, stats: SpeculationStats) -> str:
    """The line below an answer. What is not known is left out."""
    parts: list[str] = []
    if finished.timing.tokens_per_s is not None:
        parts.append(f"{finished.timing.tokens_per_s:.1f} tok/s")
    if stats.draft_acceptance_rate is not None:
        parts.append(f"{stats.draft_acceptance_rate * 100:.0f} % of draft tokens accepted")
    if finished.answer_tokens:
        parts.append(f"{finished.answer_tokens:,} {'token' if finished.answer_tokens == 1 else 'tokens'}")
    return " · ".join(parts)


KEPT = "The model that was loaded before stays."
RESTARTING = "It starts again by itself; what was written is safe."


def notice_of(reason: StopReason, sentence: str = "") -> str:
    """Why an answer ended, where that needs saying."""
    match reason:
        case StopReason.max_tokens:
            return "The answer reached the longest length allowed in Settings."
        case StopReason.context_full:
            return "The answer reached the context limit."
        case StopReason.cancelled:
            return "Stopped"
        case StopReason.failed:
            return f"The answer ended early. {sentence}".strip()
        case _:
            return ""


def model_name(file: str | Path) -> str:
    """How a model file is called where there is little room."""
    name = Path(file).name
    return name[:-5] if name.lower().endswith(".gguf") else name


def model_facts(info: ModelInfo) -> str:
    """Size, layers and context of a model, in one line."""
    parts = [info.description] if info.description else []
    if info.size:
        parts.append(size_of(info.size))
    if info.layers:
        parts.append(f"{info.layers} layers")
    if info.trained_context:
        parts.append(f"context {info.trained_context:,}")
    return " · ".join(parts)


def size_of(size: int) -> str:
    """Bytes in decimal units, as file managers show them."""
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB"


def day_of(day: date, today: date) -> str:
    """The heading a chat of that day stands under."""
    match (today - day).days:
        case 0:
            return "Today"
        case 1:
            return "Yesterday"
        case _:
            return f"{day:%d %B}".lstrip("0")
