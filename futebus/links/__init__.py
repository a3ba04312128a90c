"""Channels over NATS: what is said on one host is heard on all. See docs/hosts.md.

`origin` numbers lines; `subject` is what a channel has of a subject, `channel` what it has of a bus, and `link` joins them.
"""
