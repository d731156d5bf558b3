"""The settings that are numbers, as the dialog shows them: names, explanations, ranges, and where each is off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A number of the target's sampling. `name` is that of its field, in Settings and in SamplingParams."""

    name: str
    title: str
    explanation: str
    low: float
    high: float
    step: float
    decimals: int = 2  # 0: a whole number; if that can be off, its lowest value is
    off: float | None = None


COMMON = (
    Figure("temperature", "Temperature", "How freely words are chosen. 0: always the likeliest.", 0, 5, 0.05),
    Figure("top_k", "Top-k", "Only the k likeliest tokens stay. 0: off.", 0, 1000, 1, 0, off=0),
    Figure("top_p", "Top-p", "Only the likeliest tokens up to this share stay. 1: off.", 0.01, 1, 0.01, off=1),
    Figure("min_p", "Min-p", "Tokens below this share of the likeliest one go. 0: off.", 0, 1, 0.01, off=0),
    Figure("repeat_penalty", "Repeat penalty", "Holds back what was just written. 1: off.", 1, 2, 0.05, off=1),
)

MORE = (
    Figure("frequency_penalty", "Frequency penalty", "Grows with each time a token was written.", -2, 2, 0.1, off=0),
    Figure("presence_penalty", "Presence penalty", "The same for every token written at all.", -2, 2, 0.1, off=0),
    Figure("repeat_last_n", "Penalty window", "Tokens these two and the repeat penalty see.", 0, 65536, 32, 0, off=0),
    Figure("dry_multiplier", "DRY", "Holds back repetitions of whole phrases.", 0, 5, 0.1, off=0),
    Figure("dry_base", "DRY base", "How steeply it grows with the length of a repetition.", 1, 4, 0.05),
    Figure("dry_allowed_length", "DRY allowed length", "Repetitions up to so many tokens are free.", 0, 100, 1, 0),
    Figure("typical_p", "Typical-p", "Keeps tokens of usual surprise, up to this share. 1: off.", 0.01, 1, 0.01, off=1),
    Figure("top_n_sigma", "Top-n-sigma", "Keeps tokens within n deviations of the best. 0: off.", 0, 10, 0.1, off=0),
    Figure("dynatemp_range", "Dynamic temperature", "Follows the model's doubt by so much. 0: off.", 0, 5, 0.05, off=0),
    Figure("dynatemp_exponent", "Its exponent", "How the temperature follows the surprise.", 0, 10, 0.1),
    Figure("xtc_probability", "XTC", "How often the likeliest tokens are left out.", 0, 1, 0.05, off=0),
    Figure("xtc_threshold", "XTC threshold", "All that reach it go, but the least. Above 0.5: off.", 0, 1, 0.01),
    Figure("mirostat", "Mirostat", "Version 1 or 2, in place of samplers that cut off.", 0, 2, 1, 0, off=0),
    Figure("mirostat_tau", "Mirostat tau", "The surprise it keeps to, in bits.", 0, 20, 0.1),
    Figure("mirostat_eta", "Mirostat eta", "How fast it corrects itself.", 0, 1, 0.01),
)
