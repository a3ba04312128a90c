"""Channels as rows: what Spark reads."""
