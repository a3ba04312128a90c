"""A network of hosts on one machine: namespaces of the kernel, each with a cable to one switch.

The one rule: it touches nothing of the machine's own network, and nothing of it is left when its processes have gone. So two of
them may have the same addresses.
"""

import subprocess
from pathlib import Path

from tests.helpers.programs import Start
from tests.helpers.waiting import until

NET = "10.7.0"
"""What all addresses begin with."""

IDLE = ["sleep", "infinity"]


class Host:
    """One host: a network and a name of its own.

    Args:
        land: where it is.
        number: of its address and its cable.
        name: what it is called.
    """

    def __init__(self, land: "Land", number: int, name: str) -> None:
        self._land, self._cable = land, f"port{number}"
        self.address = f"{NET}.{number}"
        self._keeper = land.namespaces(name)
        land.inside(
            land.switch, f"ip link add {self._cable} type veth peer name eth0 netns {self._keeper}",
            f"ip link set {self._cable} master switch up",
        )  # fmt: skip
        land.inside(self._keeper, f"ip address add {self.address}/24 dev eth0", "ip link set lo up", "ip link set eth0 up")

    @property
    def words(self) -> list[str]:
        """The words in front of a command that runs there. Its process is the command's own."""
        return ["nsenter", f"--net=/proc/{self._keeper}/ns/net", f"--uts=/proc/{self._keeper}/ns/uts", "--"]

    def cut(self) -> None:
        """Pulls out its cable."""
        self._land.inside(self._land.switch, f"ip link set {self._cable} down")

    def mend(self) -> None:
        """Puts it in again."""
        self._land.inside(self._land.switch, f"ip link set {self._cable} up")


class Land:
    """Hosts, and the switch between them.

    Args:
        start: starts the processes that keep their namespaces.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self.switch = self.namespaces("switch")
        self.inside(self.switch, "ip link add switch type bridge", "ip link set switch up")
        self.hosts: list[Host] = []

    def host(self, name: str) -> Host:
        """One more host."""
        self.hosts.append(Host(self, len(self.hosts) + 1, name))
        return self.hosts[-1]

    def mend(self) -> None:
        """All cables are in."""
        for host in self.hosts:
            host.mend()

    def namespaces(self, name: str) -> int:
        """Makes a network and a name. Returns the process that keeps them."""
        process = self._start("unshare", "--net", "--uts", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh", name, *IDLE)

        def is_named() -> bool:
            assert process.poll() is None, process.communicate()
            return Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[0] == b"sleep"

        until(is_named, f"there is a host {name}")
        return process.pid

    def inside(self, keeper: int, *commands: str) -> None:
        """Does something in a network."""
        for command in commands:
            subprocess.run(["nsenter", f"--net=/proc/{keeper}/ns/net", "--", *command.split()], check=True)
