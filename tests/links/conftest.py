"""Fixtures of the links."""

from ..helpers.nats import keeping, listening, nats, serving
from .links import linking

__all__ = ["keeping", "linking", "listening", "nats", "serving"]
