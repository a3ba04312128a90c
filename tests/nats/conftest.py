"""Fixtures of what is had of servers of NATS."""

from ..helpers.nats import keeping, listening, nats, papers, serving
from .readers import reading

__all__ = ["keeping", "listening", "nats", "papers", "reading", "serving"]
