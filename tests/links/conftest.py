"""Fixtures of the links."""

from ..helpers.nats import keeping, listening, nats, papers, serving
from .links import linking

__all__ = ["keeping", "linking", "listening", "nats", "papers", "serving"]
