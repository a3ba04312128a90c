"""Fixtures of what is had of servers of NATS."""

from ..helpers.nats import listening, nats, serving

__all__ = ["listening", "nats", "serving"]
