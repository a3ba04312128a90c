"""The recorder as a service: systemd holds the channel while it is restarted."""

import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from futebus.client.inquire import inquire
from futebus.core.text import printable
from futebus.spool import NotASpool, Spool

from ..helpers.mounts import Mount, Mounting, run
from ..helpers.programs import Start
from ..helpers.recorders import RECORD, Recorder, Recording, Remounting, is_alive
from ..helpers.waiting import until
from ..spool.spools import lines_of, numbered
from ..spool.writers import finish, numbers_of, wait_for_more, writers


class Manager:
    """As much of systemd as sd_notify(3) and sd_listen_fds(3) tell of."""

    def __init__(self, address: Path) -> None:
        self.address = address
        self.told: list[str] = []
        self.store: dict[str, int] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(address))
        self._socket.settimeout(0)

    def listen(self) -> None:
        """Takes what has been said."""
        while True:
            try:
                data, descriptors, flags, _ = socket.recv_fds(self._socket, 4096, 8)
            except BlockingIOError:
                return
            assert not flags & socket.MSG_CTRUNC
            lines = data.decode().split("\n")
            self.told += lines
            words = dict(line.split("=", 1) for line in lines)
            if words.get("FDSTORE") == "1":
                assert words["FDPOLL"] == "0"
                [self.store[words["FDNAME"]]] = descriptors
            elif words.get("FDSTOREREMOVE") == "1":
                if words["FDNAME"] in self.store:
                    os.close(self.store.pop(words["FDNAME"]))
            else:
                assert not descriptors

    def wait_for(self, line: str) -> None:
        def was_told() -> bool:
            self.listen()
            return line in self.told

        until(was_told, f"it is told {line!r}")

    def command(self) -> list[str]:
        """Runs the recorder as its service: what it keeps for it begins at descriptor 3, and belongs to that very process."""
        moves = [f"exec {100 + number}<&{descriptor} {descriptor}<&-" for number, descriptor in enumerate(self.store.values())]
        moves += [f"exec {3 + number}<&{100 + number} {100 + number}<&-" for number in range(len(self.store))]
        environment = f"NOTIFY_SOCKET='{self.address}'"
        if self.store:
            environment += f" LISTEN_PID=$$ LISTEN_FDS={len(self.store)} LISTEN_FDNAMES='{':'.join(self.store)}'"
        return ["bash", "-c", "; ".join([*moves, f'{environment} exec "$0" "$@"']), *RECORD]

    def start(self, recording: Recording, channel: Path, *options: str) -> Recorder:
        self.told.clear()
        for descriptor in self.store.values():
            os.set_inheritable(descriptor, True)
        recorder = recording(channel, *options, command=self.command(), pass_fds=tuple(self.store.values()))
        self.wait_for("READY=1")
        return recorder

    def forget(self) -> None:
        """Closes what it has."""
        for descriptor in self.store.values():
            os.close(descriptor)
        self.store.clear()

    def close(self) -> None:
        self.forget()
        self._socket.close()


@pytest.fixture
def manager(place: Path) -> Iterator[Manager]:
    made = Manager(place / "notify")
    yield made
    made.close()


def test_a_restart_of_the_service_loses_nothing(bus: Mount, recording: Recording, manager: Manager, start: Start) -> None:
    recorder = manager.start(recording, bus / "U_x")
    assert f"STATUS=Recording {bus / 'U_x'}" in manager.told
    opener = recorder.holder
    running = writers(start, bus / "U_x", 2)
    for number in range(3):
        wait_for_more(recorder.spool)
        [client] = bus.clients("U_x", role="master")
        assert client["pid"] == opener
        if number == 1:  # both at once, which is what a service manager does when it is in a hurry
            drain = recorder.drain()
            os.killpg(recorder.process.pid, signal.SIGKILL)
            recorder.process.wait()
            until(lambda: not is_alive(drain), "it is dead, too")  # noqa: B023
        else:
            recorder.end()
            manager.wait_for("STOPPING=1")
        assert len(manager.store) == 1
        assert (bus / "U_x").exists()
        recorder = manager.start(recording, bus / "U_x")
    written = finish(running)
    recorder.end(signal.SIGINT)
    manager.listen()
    assert manager.store == {}
    assert not (bus / "U_x").exists()
    assert numbers_of(recorder.spool, 2) == written


def test_what_is_dropped_meanwhile_is_counted(mounting: Mounting, recording: Recording, manager: Manager) -> None:
    bus = mounting("max_queue=10")
    recorder = manager.start(recording, bus / "B_x")
    recorder.end()
    (bus / "B_x").write_bytes(numbered(0, 100))
    for end in (100, 200):
        recorder = manager.start(recording, bus / "B_x")
        spool, lost = Spool(recorder.spool), end - end // 10
        until(lambda spool=spool, lost=lost: spool.last.lost == lost, "losses are counted")  # type: ignore[misc]
        recorder.end()
        assert lines_of(recorder.spool).endswith(numbered(end - 10, end))
        (bus / "B_x").write_bytes(numbered(end, end + 100))


def test_losses_are_not_invented_when_the_spool_is_taken_away(mounting: Mounting, recording: Recording, manager: Manager) -> None:
    bus = mounting("max_queue=10")
    manager.start(recording, bus / "B_x").end()
    (bus / "B_x").write_bytes(numbered(0, 100))
    recorder = manager.start(recording, bus / "B_x")
    until(lambda: Spool(recorder.spool).last.lost == 90, "losses are counted")
    recorder.end()
    manager.forget()
    recorder = manager.start(recording, bus / "B_x")
    recorder.end()
    shutil.rmtree(recorder.spool)
    (bus / "B_x").write_bytes(numbered(100, 200))
    recorder = manager.start(recording, bus / "B_x")

    def has_counted() -> bool:
        with contextlib.suppress(NotASpool):  # it is just being made
            return Spool(recorder.spool).last.lost > 0
        return False

    until(has_counted, "losses are counted")
    recorder.end()
    assert Spool(recorder.spool).last.lost == 90
    assert lines_of(recorder.spool) == numbered(190, 200)


def test_what_an_earlier_version_has_kept_is_taken_over(mounting: Mounting, recording: Recording, manager: Manager) -> None:
    bus = mounting("max_queue=10")
    recorder = manager.start(recording, bus / "B_x")
    recorder.end()
    manager.wait_for("STOPPING=1")
    [name] = manager.store
    prefix, _, lost = name.rpartition("-")
    manager.store[f"{prefix}-{recorder.holder}-{lost}"] = manager.store.pop(name)
    (bus / "B_x").write_bytes(numbered(0, 100))
    recorder = manager.start(recording, bus / "B_x")
    until(lambda: Spool(recorder.spool).last.lost == 90, "losses are counted")
    recorder.end()
    assert lines_of(recorder.spool) == numbered(90, 100)
    assert len(manager.store) == 1


def test_a_channel_that_died_meanwhile_is_opened_anew(
    bus: Mount, recording: Recording, manager: Manager, remounting: Remounting
) -> None:
    manager.start(recording, bus / "U_x").end()
    manager.wait_for("STOPPING=1")
    again = remounting(bus)
    recorder = manager.start(recording, again / "U_x")
    again.wait_for_clients(1, "U_x", role="master")
    (again / "U_x").write_bytes(b"one\n")
    recorder.end()
    manager.listen()
    assert lines_of(recorder.spool) == b"one\n", recorder.words
    [kept] = manager.store.values()
    assert inquire(kept).received == 1


@pytest.mark.parametrize("name", ["B_x\nWATCHDOG=1\x1b[2J", os.fsdecode(b"B_\xff\n\\")])
def test_a_name_says_nothing_else_to_the_service_manager(bus: Mount, recording: Recording, manager: Manager, name: str) -> None:
    recorder = recording(bus / name, command=manager.command())
    until(lambda: manager.listen() or "READY=1" in manager.told, "it is told")  # type: ignore[func-returns-value]
    assert {word.partition("=")[0] for word in manager.told} <= {"FDSTORE", "FDPOLL", "FDNAME", "READY", "STATUS"}
    assert f"STATUS=Recording {printable(str(bus / name))}" in manager.told
    recorder.end(signal.SIGINT)
    assert all(line.isprintable() and line.startswith("futebus-record: ") for line in recorder.words.split("\n")[:-1])
    shown = run(*RECORD, "--info", recorder.spool).stdout
    assert shown.splitlines()[0] == f"channel   {printable(name)}"


def test_what_is_not_its_channel_is_closed(bus: Mount, recording: Recording, manager: Manager) -> None:
    manager.start(recording, bus / "U_x").end()
    manager.store["something"], other = os.pipe()
    shutil.rmtree(bus.path.parent / "spool")
    recorder = manager.start(recording, bus / "B_y")
    manager.listen()
    assert [name.split("-")[2:] for name in manager.store] == [["0"]]
    until(lambda: not (bus / "U_x").exists(), "its master has gone")
    with pytest.raises(BrokenPipeError):
        os.write(other, b"x")
    os.close(other)
    recorder.end()


def test_the_unit_is_in_order(place: Path) -> None:
    unit = Path(__file__).parents[2] / "systemd" / "futebus-record@.service"
    text = unit.read_text()
    assert "\nExecStart=futebus-record " in text
    copy = place / unit.name
    copy.write_text(text.replace("ExecStart=futebus-record", f"ExecStart={sys.executable} -m futebus.commands.record"))
    done = run("systemd-analyze", "verify", "--man=no", copy)
    assert (done.returncode, done.stderr) == (0, "")
