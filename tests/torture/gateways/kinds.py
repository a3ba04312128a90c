"""The gateways that are tortured: how each is started, and what its peers speak."""

import sys
from pathlib import Path
from typing import NamedTuple

from .forms import Form, Plain, SbusLines, SbusPackets, Script, Tmb


class Kind(NamedTuple):
    """A gateway, and a way to use it."""

    module: str
    """Its command."""
    channel: str
    """Of the bus that it is joined to; empty if it is none."""
    socket: str
    """The name of its socket; empty: a port."""
    form: Form
    """What is said on its socket."""
    bus_form: Form
    """What is said on its channel."""
    ready: str
    """What it says when it is ready."""
    asks: bool = False
    """Whether each line is a request that a service answers."""
    limits: tuple[str, ...] = ()
    """Its options for how much may wait for a peer."""

    @property
    def has_packets(self) -> bool:
        """Whether peers send packets, and not a stream of lines."""
        return "sbus" in self.module

    def words(self, name: str, address: str, channel: Path, options: list[str], *, waits: bool) -> list[str]:
        """The arguments by which it is started.

        Args:
            name: of this kind.
            address: a port, or the path of a socket.
            channel: on the mounted bus.
            options: more of them.
            waits: whether it waits for the bus.
        """
        more = [*options, *(["--wait"] if waits and self.channel else [])]
        if name == "tmb":
            return [*more, "-l", f"127.0.0.1:{address}", str(channel)]
        if self.has_packets:
            return [*more, "-f", "-a", address, *(["--channel", str(channel)] if self.channel else [])]
        return [*more, address] if name == SCRIPT else ["expose", *more, str(channel), address]


SCRIPT = "ubus script"

_TMB, _SBUS, _UBUS = "futebus.commands.tmb", "futebus.commands.sbus", "futebus.commands.ubus"
_QUEUE, _QUEUES, _WAITING = ("--max-queue",), ("--max-queue-bytes",), ("--max-waiting",)
_LINES = Plain()

KINDS = {
    "tmb": Kind(_TMB, "B_x", "", Tmb(), Tmb(), "is served on", limits=_QUEUE),
    "sbus": Kind(_SBUS, "", "x.socket", SbusPackets(), SbusLines(), "serving on", limits=_QUEUES),
    "sbus --channel": Kind(_SBUS, "B_x", "x.socket", SbusPackets(), SbusLines(), "serving on", limits=_QUEUES),
    "ubus .method": Kind(_UBUS, "S_x", "x.method", _LINES, _LINES, "is exposed as", asks=True),
    "ubus .rest": Kind(_UBUS, "S_x", "x.rest", _LINES, _LINES, "is exposed as", asks=True),
    "ubus .signal": Kind(_UBUS, "B_x", "x.signal", _LINES, _LINES, "is exposed as", limits=_WAITING),
    "ubus .property": Kind(_UBUS, "B_x", "x.property", _LINES, _LINES, "is exposed as", limits=_WAITING),
    SCRIPT: Kind(_UBUS, "", "x.socket", Script(), Script(), "", limits=_WAITING),
}
"""By their names."""


def command_of(kind: Kind, prefix: list[str] | None = None) -> list[str]:
    """The command of a gateway.

    Args:
        kind: which.
        prefix: what is run in its place, with the module as an argument.
    """
    return [sys.executable, "-m", *(prefix or []), kind.module]
