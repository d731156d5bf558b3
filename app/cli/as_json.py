"""What several commands print as JSON, in the same form (DESIGN, section 5)."""

from __future__ import annotations

from typing import Any

from app.engine.protocol import ModelInfo
from app.engine.stats import SpeculationStats


def model_json(info: ModelInfo) -> dict[str, Any]:
    return {"file": info.file, "gpu_layers": info.gpu_layers, "layers": info.layers}


def speculation_json(stats: SpeculationStats) -> dict[str, Any]:
    """Counters, and the ratios that follow from them: null for 0/0."""
    return {
        "rounds": stats.rounds,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "rejected": stats.rejected,
        "discarded": stats.discarded,
        "draft_acceptance_rate": stats.draft_acceptance_rate,
        "token_acceptance_probability": stats.token_acceptance_probability,
        "mean_acceptance_length": stats.mean_acceptance_length,
        "acceptance_at": stats.acceptance_at,
        "draft_lengths": {str(length): stats.draft_lengths[length] for length in sorted(stats.draft_lengths)},
    }
