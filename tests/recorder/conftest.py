"""Fixtures of recorders that publish."""

from ..helpers.nats import keeping, listening, nats, serving

__all__ = ["keeping", "listening", "nats", "serving"]
