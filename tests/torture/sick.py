"""A futebus with a weak spot: `sick.py SWITCHES ARGUMENTS...` is `futebus ARGUMENTS...`.

While there is a file `CLASS.METHOD` in the directory SWITCHES, every call of that method fails before it has done anything.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import futebus.fuse.mount as _mount  # first: it loads what the others need
from futebus.commands.futebus import main
from futebus.core import stat
from futebus.core.bus import Bus
from futebus.fuse import answers, filesystem
from futebus.fuse.files import OpenStat
from futebus.fuse.nodes import Nodes
from futebus.fuse.waiting import Calls

HANDLERS = "getattr setattr statfs lookup unlink opendir readdir releasedir open create release poll".split()
METHODS = (
    *((filesystem.Directory, name) for name in HANDLERS),
    *((Bus, name) for name in ("look_up", "create", "open", "unlink", "close", "write", "read", "cancel", "poll")),
    *((Nodes, name) for name in ("offer", "open", "close", "forget")),
    *((Calls, name) for name in ("add", "remove", "read", "write", "interrupt")),
    *((OpenStat, name) for name in ("read", "finish")),
    (stat, "Taking"),
)


class Boom(Exception):
    """The fault."""


def weaken(switches: Path, owner: Any, name: str) -> None:
    """Makes a method fail on demand."""
    title = f"{owner.__name__.rpartition('.')[2]}.{name}"
    original = getattr(owner, name)
    handler = getattr(original, "__wrapped__", None)
    inner: Callable[..., Any] = handler or original

    def check() -> None:
        if (switches / title).exists():
            raise Boom(title)

    if inspect.iscoroutinefunction(inner):

        @functools.wraps(inner)
        async def asynchronous(*arguments: Any, **keywords: Any) -> Any:
            check()
            return await inner(*arguments, **keywords)

        setattr(owner, name, answers.answered(asynchronous) if handler else asynchronous)
    else:

        @functools.wraps(inner)
        def synchronous(*arguments: Any, **keywords: Any) -> Any:
            check()
            return inner(*arguments, **keywords)

        setattr(owner, name, synchronous)


if __name__ == "__main__":
    assert _mount
    for owner_, name_ in METHODS:
        weaken(Path(sys.argv[1]), owner_, name_)
    sys.exit(main(sys.argv[2:]))
