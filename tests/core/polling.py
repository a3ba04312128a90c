"""Helpers for what polls."""

from futebus.core.client import Access, Client, Readiness
from futebus.core.limits import Limits

from .driver import Driver


def bits(readiness: Readiness) -> str:
    """`r`eadable, `h`ung up, `w`ritable, `b`roken; the reading ones first."""
    assert readiness.readable or not readiness.hung_up
    assert readiness.writable or not readiness.broken
    return "".join(letter for letter, is_set in zip("rhwb", readiness, strict=True) if is_set)


def polled(bus: Driver, client: Client) -> str:
    return bits(bus.poll(client))


def service(limits: Limits, *accesses: Access, name: bytes = b"U_x") -> tuple[Driver, Client, list[Client]]:
    """A channel whose master reads and writes, and its slaves."""
    bus = Driver(limits)
    master = bus.create(b"." + name)
    slaves = [bus.open(name, access) for access in accesses]
    if name.startswith(b"S"):
        bus.read_all(master)
    return bus, master, slaves
