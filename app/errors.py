"""Errors that people read.

Every one carries a sentence that names the cause and the way out. Front ends print `str(error)` and use `exit_code`;
anything else that escapes is a bug of ours and goes to the log with its traceback.
"""

from __future__ import annotations


class SlipstreamError(Exception):
    """A fault with a sentence for the user. `exit_code` is what a command ends with (DESIGN: 2, 3, 4 or 130)."""

    exit_code = 3


class UsageError(SlipstreamError):
    """The request itself cannot be carried out as it was put."""

    exit_code = 2


class ModelFileError(SlipstreamError):
    """A model file is missing, damaged, of another kind, or asks for an engine we do not have."""


class PairError(SlipstreamError):
    """The draft cannot serve this target."""


class PromptError(SlipstreamError):
    """The conversation cannot be turned into a prompt for this model."""


class ContextFullError(PromptError):
    """The message needs more tokens than the context has."""


class OutOfMemoryError(SlipstreamError):
    """A model, its cache or a computation needs more memory than is free."""


class EngineDiedError(SlipstreamError):
    """The engine's process ended by itself. The sentence names the cause; the next message starts it again."""

    exit_code = 4


class CancelledError(SlipstreamError):
    """The user asked to stop."""

    exit_code = 130
