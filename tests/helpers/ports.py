"""Ports that nobody has, and that stay free for who had one and will want it again."""

import itertools
import random
import socket
from collections.abc import Iterator
from pathlib import Path

LEAST = 15_000
"""Lower ones are known for something."""

SHARES = 128
"""Of how many processes each can have ports that no other one is given."""


def _share() -> tuple[socket.socket, Iterator[int]]:
    """Ports for this process alone, one after the other, and what keeps them for it until it ends.

    A port that was only just found free has no listener yet, and one whose server was killed has none until that is back:
    whoever looks for a port meanwhile finds it free as well, be it in another run of the tests.
    """
    clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(LEAST, clients if clients > LEAST + 1000 else 1 << 16)
    for share in random.sample(range(SHARES), SHARES):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0futebus-test-ports-{share}")  # a name is known as far as ports are: in a network namespace
        except OSError:
            claim.close()
            continue
        mine = ports[share::SHARES]
        first = random.randrange(len(mine))
        return claim, itertools.cycle([*mine[first:], *mine[:first]])
    raise RuntimeError(f"{SHARES} processes look for ports")


# At once, and not when the first one is wanted: a test counts descriptors.
_claim, _ports = _share()


def free_port() -> int:
    """A TCP port that nobody listens on.

    The kernel would give one of those from which it takes ports for clients, too: when its server is killed, any connection of
    this machine may get it before the server is back; even the one of a client that tries to reach the server, which then
    talks to itself.
    """
    while True:
        port = next(_ports)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
