"""Generates text. No Qt, no network, no files but the GGUF it is given."""

from app.chat import ModelPair
from app.engine.client import Engine
from app.engine.protocol import GenerationRequest, LoadOptions, SamplingParams, SpeculationParams

__all__ = ["Engine", "GenerationRequest", "LoadOptions", "ModelPair", "SamplingParams", "SpeculationParams"]
