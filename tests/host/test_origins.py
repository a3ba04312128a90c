"""Whom a TCP connection counts for: real connections of real users, and how many places one has."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from futebus.host.origins import PER_ADDRESS, Origin, Peers, origin, origin_of

from ..helpers.waiting import DEADLINE


@pytest.mark.parametrize(
    ("host", "network", "is_here"),
    [
        ("127.0.0.1", "this machine", True),
        ("::1", "this machine", True),
        ("::ffff:127.0.0.1", "this machine", True),
        ("::ffff:192.0.2.1", "192.0.2.1", False),
        ("192.0.2.1", "192.0.2.1", False),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", False),
        ("fe80::1%eth0", "fe80::/64", False),
    ],
)
def test_whom_an_address_counts_for(host: str, network: str, is_here: bool) -> None:
    assert origin(host) == Origin(network, is_here)


HERE, ANN, BEN = origin("127.0.0.1"), origin("192.0.2.1"), origin("192.0.2.2")


def test_the_places_of_an_address() -> None:
    peers = Peers(256, None)
    assert (peers.share(HERE), peers.share(ANN)) == (128, PER_ADDRESS)
    assert Peers(10, None).share(ANN) == 5
    assert Peers(1).share(ANN) == 1
    mine, roots, others = (origin("127.0.0.1", uid) for uid in (os.geteuid(), 0, 12345))
    assert [peers.share(each) for each in (mine, roots, others)] == [256, 256, 128]
    assert Peers(256, 3).share(HERE) == 3
    with contextlib.ExitStack() as stack:
        for _ in range(PER_ADDRESS):
            assert not peers.are_all_of(ANN)
            stack.enter_context(peers.place(ANN))
        assert peers.are_all_of(ANN)
        assert not peers.are_all_of(BEN)
        assert not peers.are_all()
    assert not peers.are_all_of(ANN)


ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.0.3")


@pytest.mark.parametrize("user", [12345, None])
def test_a_user_of_this_machine_has_not_more_places_by_more_addresses(user: int | None) -> None:
    peers = Peers(8)
    with contextlib.ExitStack() as stack:
        for place in range(4):
            stack.enter_context(peers.place(origin(ADDRESSES[place], user)))
        assert all(peers.are_all_of(origin(address, user)) for address in (*ADDRESSES, "127.9.9.9"))
        assert not peers.are_all_of(origin("127.0.0.1", 54321))
        assert not peers.are_all()
    assert origin("192.0.2.7", 12345) == origin("::1", 12345), "by an address of this machine that others have too"


def test_who_has_gone_already_is_not_root() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()):
            connection, _ = listener.accept()
        with connection:
            assert origin_of(connection).uid is None


@pytest.mark.parametrize("name", ["futebus-tmb@.service", "futebus-web.service"])
def test_a_service_that_shares_out_places_may_ask_whose_connections_are(name: str) -> None:
    """Otherwise nobody of this machine is known: one user takes the part of all, and root waits with the others."""
    unit = (Path(__file__).parents[2] / "systemd" / name).read_text()
    [families] = re.findall(r"^RestrictAddressFamilies=(.+)$", unit, re.MULTILINE)
    assert {"AF_INET", "AF_INET6", "AF_NETLINK"} <= set(families.split())


CONNECT = """
import os, socket, sys
os.setuid(int(sys.argv[3]))  # in here: not everybody may run this Python
connection = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
connection.connect((sys.argv[1], int(sys.argv[2])))
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("family", "listens", "host"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.2"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "::ffff:127.0.0.1"),
    ],
)
@pytest.mark.parametrize("user", [0, 65534])
def test_who_connects_from_this_machine_is_known(family: int, listens: str, host: str, user: int) -> None:
    if user != os.geteuid() and os.geteuid():
        pytest.skip("only root can be somebody else")
    with socket.socket(family) as listener:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.settimeout(DEADLINE)
        listener.bind((listens, 0))
        listener.listen()
        command = [sys.executable, "-c", CONNECT, host, str(listener.getsockname()[1]), str(user)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            connection, _ = listener.accept()
            with connection:
                found = origin_of(connection)
            process.communicate(timeout=DEADLINE)
    assert (found.is_here, found.uid) == (True, user)
