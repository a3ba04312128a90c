"""Whom a TCP connection counts for: the user at its other end if that is on this machine, or else the network that it is from.

The one rule: one of them does not take all the places that there are.
"""

import contextlib
import ipaddress
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

PER_ADDRESS = 64
"""Connections of one address, unless something else was said; half of all there may be, if that is less."""

ROOT = 0

HERE = "this machine"


class Origin(NamedTuple):
    """Whom a connection counts for."""

    network: str
    """Where it is from. A user of this machine has millions of its addresses: they are all one."""
    is_here: bool
    """Whether it is this machine's own."""
    uid: int | None = None
    """The user, if it is; None if that cannot be known."""


def origin(host: str, uid: int | None = None) -> Origin:
    """Whom a connection from an address counts for: the address, of IPv6 the network of 64 bits, since each has all of one.

    Who is on this machine counts as the user that he is, whatever address he has taken; all those that are not known as one.

    Args:
        host: the address, with or without a zone.
        uid: who is there, if that is known.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_loopback or uid is not None:
        return Origin(HERE, True, uid)
    if isinstance(address, ipaddress.IPv6Address):
        return Origin(str(ipaddress.ip_network((address, 64), strict=False)), False)
    return Origin(str(address), False)


def is_own(who: Origin) -> bool:
    """Whether it is root on this machine, or whose process this is."""
    return who.is_here and who.uid in (ROOT, os.geteuid())


class Connected(Protocol):
    """A socket, of whatever library."""

    @property
    def family(self) -> int:
        """Of its addresses."""

    def getpeername(self) -> Any:
        """The other end."""

    def getsockname(self) -> Any:
        """Our end."""


def origin_of(connection: Connected) -> Origin:
    """Whom a TCP connection counts for.

    Raises:
        OSError: it has gone.
    """
    peer, own = connection.getpeername(), connection.getsockname()
    return origin(peer[0], _user(connection.family, peer, own) if peer[0] == own[0] or _is_loopback(peer[0]) else None)


def _is_loopback(host: str) -> bool:
    return origin(host).is_here


_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_HEAD = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_SOCKET = struct.Struct("!HH16s16sI8s")
_UID_AT = _HEAD.size + 4 + _SOCKET.size + 12
"""Behind the family and its like, the socket, and three numbers: struct inet_diag_msg of sock_diag(7)."""


def _user(family: int, peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Whose a socket of this machine is, as sock_diag(7) tells.

    Args:
        family: of its addresses.
        peer: its own address and port.
        own: to what it is connected.

    Returns:
        The user's number; None if the socket is not one of this machine, or if nobody has it any more.
    """
    with contextlib.suppress(OSError, struct.error):
        ends = (socket.inet_pton(family, end[0].partition("%")[0]) for end in (peer, own))
        wanted = _SOCKET.pack(peer[1], own[1], *ends, 0, b"\xff" * 8)
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFF_FFFF) + wanted
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(1)  # it answers at once
            kernel.send(_HEAD.pack(_HEAD.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request)
            answer = kernel.recv(4096)
        if _HEAD.unpack_from(answer)[1] == _SOCK_DIAG_BY_FAMILY:
            uid, inode = struct.unpack_from("=II", answer, _UID_AT)
            # One that nobody has open any more is said to be root's.
            return int(uid) if inode else None
    return None


class Peers:
    """Those who have a place.

    Args:
        most: how many there may be.
        per_address: how many of one user or address; None: of an address elsewhere, what `PER_ADDRESS` says, and of a user of
            this machine, or all there who are not known, half of all, but for root and whose process this is. Who is relayed
            here is whoever relays him.
    """

    def __init__(self, most: int, per_address: int | None = None) -> None:
        self._most = most
        self._per_address = per_address
        self._counts: Counter[Origin] = Counter()
        self._all = 0

    def share(self, who: Origin) -> int:
        """How many of this user or address there may be."""
        if self._per_address is not None:
            return self._per_address
        half = max(self._most // 2, 1)
        if not who.is_here:
            return min(PER_ADDRESS, half)
        return self._most if is_own(who) else half

    def are_all(self) -> bool:
        """Whether there is no place for anybody."""
        return self._all >= self._most

    def are_all_of(self, who: Origin) -> bool:
        """Whether there is no place for one more of this user or address."""
        return self._counts[who] >= self.share(who)

    @contextlib.contextmanager
    def place(self, who: Origin) -> Iterator[None]:
        """Somebody has a place, for as long as this lasts."""
        self._counts[who] += 1
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1
            self._counts[who] -= 1
            if not self._counts[who]:
                del self._counts[who]
