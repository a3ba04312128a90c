"""A channel's way into a spool: `futebus-record`, and the drains of Spark's queries."""
