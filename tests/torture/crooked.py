"""A futebus that cheats, to see that the trials notice: `crooked.py HOW ARGUMENTS...` is `futebus ARGUMENTS...`.

Every fiftieth message to one client goes wrong in the way that is asked for.
"""

import itertools
import sys
from collections.abc import Callable

import futebus.fuse.mount as _mount  # first: it loads what the others need
from futebus.commands.futebus import main
from futebus.core.client import Client, Effects
from futebus.core.framing import Run

EVERY = 50

Deliver = Callable[[Client, Run, Effects], None]
_deliver: Deliver = Client.deliver
_held: dict[Client, Run] = {}


def loses(client: Client, run: Run, effects: Effects) -> None:
    """It is not delivered."""


def doubles(client: Client, run: Run, effects: Effects) -> None:
    """It is delivered twice; of many at once, the last of them."""
    _deliver(client, run, effects)
    _deliver(client, Run(run.data[run.data.rfind(b"\n", 0, -1) + 1 :], 1), effects)


def alters(client: Client, run: Run, effects: Effects) -> None:
    """Its last byte is another one."""
    _deliver(client, Run(run.data[:-2] + bytes([run.data[-2] ^ 0x40]) + b"\n", run.messages), effects)


def misleads(client: Client, run: Run, effects: Effects) -> None:
    """It is delivered to another one who reads, if there is one."""
    others = [reader for reader in client.channel.readers.values() if reader is not client]
    _deliver(others[0] if others else client, run, effects)


def overtakes(client: Client, run: Run, effects: Effects) -> None:
    """It is delivered after the next one."""
    _held[client] = run


WAYS: dict[str, Deliver] = {way.__name__: way for way in (loses, doubles, alters, misleads, overtakes)}


def cheat(how: Deliver) -> None:
    """Has every so manieth message go wrong."""
    number = itertools.count(1)

    def deliver(client: Client, run: Run, effects: Effects) -> None:
        if next(number) % EVERY == 0:
            how(client, run, effects)
        else:
            _deliver(client, run, effects)
            if held := _held.pop(client, None):
                _deliver(client, held, effects)

    setattr(Client, "deliver", deliver)  # noqa: B010 - or mypy thinks that it knows better


def sleep() -> None:
    """Has every so manieth client that waits for a message wait on when it comes."""
    number = itertools.count(1)
    became_readable = Client._became_readable

    def doze(client: Client, effects: Effects) -> None:
        if next(number) % EVERY:
            became_readable(client, effects)

    setattr(Client, "_became_readable", doze)  # noqa: B010


if __name__ == "__main__":
    assert _mount
    if sys.argv[1] == "sleeps":
        sleep()
    else:
        cheat(WAYS[sys.argv[1]])
    sys.exit(main(sys.argv[2:]))
