"""Fixtures of the gateways."""

from .sbuses import sbus, serving

__all__ = ["sbus", "serving"]
