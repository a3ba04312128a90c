"""Fixtures of the links."""

from ..helpers.nats import listening, nats, serving
from .links import linking

__all__ = ["linking", "listening", "nats", "serving"]
