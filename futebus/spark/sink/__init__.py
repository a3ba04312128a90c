"""Rows as lines on channels: what Spark writes."""
