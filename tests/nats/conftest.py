"""Fixtures of what is had of servers of NATS."""

from ..helpers.nats import listening, nats, serving
from .readers import keeping, reading

__all__ = ["keeping", "listening", "nats", "reading", "serving"]
