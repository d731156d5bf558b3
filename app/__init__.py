"""Slipstream: chat with local models, exactly and sooner."""

__version__ = "0.1.0"
