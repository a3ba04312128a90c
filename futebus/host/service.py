"""What a service manager wants to hear of a program, and what it keeps for it: sd_notify(3) and sd_listen_fds(3) of systemd."""

import os
import socket
from collections.abc import MutableMapping, Sequence

from ..core.text import printable

FIRST_DESCRIPTOR = 3
"""The first that is passed on: SD_LISTEN_FDS_START."""


PATIENCE = 1.0
"""Seconds that a service manager which is stuck has, if nobody waits meanwhile."""


class ServiceManager:
    """What runs this program as a service, if anything does; otherwise nothing that is said here is heard.

    Args:
        environment: where it says how to reach it, and what it passes on.
    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._address = environment.get("NOTIFY_SOCKET", "")

    def __bool__(self) -> bool:
        return self._address[:1] in ("/", "@")

    @property
    def watchdog(self) -> float | None:
        """Seconds within which it wants to hear `WATCHDOG=1` again and again, if it does."""
        microseconds, process = self._environment.get("WATCHDOG_USEC", ""), self._environment.get("WATCHDOG_PID", "")
        if not microseconds.isdecimal() or int(microseconds) == 0 or process not in ("", str(os.getpid())):
            return None
        return int(microseconds) / 1e6

    def tell(self, *words: str, descriptors: Sequence[int] = (), patience: float = PATIENCE) -> bool:
        """Says something, `READY=1` for one, and passes descriptors on. It is not known whether it is heard.

        Args:
            words: what to say. Each is one line, whatever is in it: what has a name that somebody has chosen says nothing else.
            descriptors: what to pass on.
            patience: for how many seconds to wait if it is stuck and takes nothing. 0 where somebody waits for us.

        Returns:
            Whether it has been taken; what has not may be said again. Yes, if nobody is there.
        """
        if not self:
            return True
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
                manager.settimeout(patience)
                manager.connect(address)
                socket.send_fds(manager, ["\n".join(map(printable, words)).encode()], list(descriptors))
        except OSError:
            return False
        return True

    def keep(self, name: str, descriptor: int) -> None:
        """Has it keep a descriptor, so that the program finds it again when it is restarted.

        It is told not to poll it: it would wake up at each message of a channel, and drop the channel at its end, as we do.
        """
        self.tell("FDSTORE=1", "FDPOLL=0", f"FDNAME={name}", descriptors=[descriptor])

    def drop(self, name: str) -> None:
        """Has it close the descriptors that it keeps under a name."""
        self.tell("FDSTOREREMOVE=1", f"FDNAME={name}")

    def kept(self) -> list[tuple[str, int]]:
        """What it has kept and passes on: names and descriptors. They are passed on to this process and no other."""
        found: list[tuple[str, int]] = []
        if self._environment.get("LISTEN_PID") == str(os.getpid()) and self._environment.get("LISTEN_FDS", "").isdecimal():
            count = int(self._environment["LISTEN_FDS"])
            names = self._environment.get("LISTEN_FDNAMES", "").split(":")
            for number in range(count):
                descriptor = FIRST_DESCRIPTOR + number
                os.set_inheritable(descriptor, False)
                found.append((names[number] if number < len(names) else "unknown", descriptor))
        for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
            self._environment.pop(name, None)
        return found
