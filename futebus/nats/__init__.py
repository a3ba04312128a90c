"""What is had of servers of NATS: who one is to them, connections, and streams of JetStream that keep lines.

`address` says where a subject or a stream is, `access` who one is to a server; `connection` is one to a server, `stream` a stream
as it has it (these two know nats-py), and `runs` says how lines are messages of a stream.
"""
