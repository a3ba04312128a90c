"""Fixtures of recorders that publish."""

from ..helpers.nats import listening, nats, serving

__all__ = ["listening", "nats", "serving"]
