"""Ports that nobody has, and that stay free for who had one and will want it again."""

import random
import socket
from pathlib import Path

LEAST = 15_000
"""Lower ones are known for something."""


def free_port() -> int:
    """A TCP port that nobody listens on.

    The kernel would give one of those from which it takes ports for clients, too: when its server is killed, any connection of
    this machine may get it before the server is back; even the one of a client that tries to reach the server, which then
    talks to itself.
    """
    clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(LEAST, clients if clients > LEAST + 1000 else 1 << 16)
    while True:
        port = random.choice(ports)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
