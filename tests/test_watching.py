"""The watch over all processes finds who is stuck inside FUSE, and takes nobody for stuck who only waits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .helpers import watching
from .helpers.mounts import Mount, Mounting, cut_connection, device_of
from .helpers.processes import Stat, inside_fuse, links_of, stat_of, state_of, waits_for_disk
from .helpers.programs import Start
from .helpers.waiting import DEADLINE, until
from .helpers.watching import (
    CROWD,
    PATIENCE,
    PAUSE,
    WATCH,
    Watch,
    abort_connection,
    is_connected,
    relatives,
)

QUEUE_BEHIND = "{ (for n in 1 2 3; do echo one; done) & (for n in 1 2 3; do echo two; done) & wait; } >> %s"
"""Two processes that append to one open file take turns in the kernel: the second is in state D while the first waits."""


def look_again(times: int = round(4 * PATIENCE / PAUSE)) -> None:
    """Waits until the watch has looked so many times more: at anybody whom it finds, long enough."""
    enough = WATCH.looks + times
    until(lambda: WATCH.looks >= enough, "the watch looks")


def states(session: int) -> str:
    """The states of the processes of a session, in the order of their numbers."""
    found = [stat_of(name) for name in sorted(filter(str.isdecimal, os.listdir("/proc")), key=int)]
    return "".join(stat.state for stat in found if stat and stat.session == session)


def test_who_is_stuck_is_found_with_the_stacks_of_all(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    with WATCH.expecting() as found:
        writers = start("bash", "-c", QUEUE_BEHIND % (bus / "U_jobs"))
        until(lambda: found, "the watch finds it")
        look_again()
        [report] = found  # others may be long in this state, too, if nobody reads for a while
        while states(writers.pid).replace("Z", ""):  # who has been let go
            assert os.read(master, 100) in (b"one\n", b"two\n")
            until(
                lambda: bus.clients("U_jobs", role="master")[0]["rlist_messages"] or not states(writers.pid).strip("Z"),
                "more",
            )
    assert writers.wait(DEADLINE) == 0
    assert report.startswith("stuck in state D inside FUSE: 1, ")
    lines = [line for line in report.splitlines() if " (bash), " in line]
    assert ["D" in line.partition("), ")[2].partition(":")[0] for line in lines[1:]].count(True) == 1, report
    assert any("), S: " in line and "fuse_" in line for line in lines), f"and who is in the way: {report}"
    assert f"{bus.daemon.pid}/task/" in report
    assert "a daemon), S: " in report
    os.close(master)


@pytest.mark.parametrize("options", [[], ["allow_other", "user=nobody"]], ids=["root", "nobody"])
def test_a_mount_with_somebody_stuck_is_aborted_and_fails_the_test(mounting: Mounting, start: Start, options: list[str]) -> None:
    bus = mounting("max_queue=1", *options)
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    writers = start("bash", "-c", QUEUE_BEHIND % (bus / "U_jobs"))
    assert writers.wait(DEADLINE) == 0
    with pytest.raises(OSError, match=r"not connected|abort"):
        os.write(master, b"hello\n")
    os.close(master)
    while not bus.was_aborted:  # `until` raises by now
        time.sleep(0.001)
    with pytest.raises(AssertionError, match="the mount was aborted: stuck in state D inside FUSE"):
        bus.unmount()
    bus.was_killed = True
    with pytest.raises(AssertionError, match="stuck in state D inside FUSE"):
        WATCH.check()


@pytest.mark.parametrize("others", [0, CROWD], ids=["two", "a crowd"])
def test_threads_are_watched_too(mounting: Mounting, start: Start, others: int) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    code = """
import os, sys, threading
for _ in range(int(sys.argv[2])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
threads = [threading.Thread(target=lambda: [os.write(descriptor, b"line\\n") for _ in range(3)]) for _ in range(2)]
for thread in threads:
    thread.start()
"""
    writer = start(sys.executable, "-c", code, bus / "U_jobs", others)
    with WATCH.expecting() as found:
        until(lambda: found, "the watch finds it")
        for _ in range(6):
            assert os.read(master, 100) == b"line\n"
        assert writer.wait(DEADLINE) == 0
    assert f"{writer.pid}/task/" in found[0]
    assert f"  {writer.pid}/task/{writer.pid} (" not in found[0].partition("\nall ")[0], "the first thread does not write"
    os.close(master)


@pytest.mark.parametrize("is_asked", [True, False], ids=["while ours is asked, too", "while nobody asks ours"])
def test_who_is_stuck_in_somebody_else_s_bus_is_none_of_ours(
    mounting: Mounting, start: Start, monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    ours, other = mounting(), mounting("max_queue=1")
    if is_asked:
        start("cat", ours.touch("B_x"), stdout=subprocess.DEVNULL)
        ours.wait_for_readers(1, "B_x")
    monkeypatch.setattr(WATCH, "_daemons", lambda: [ours.daemon.pid])
    master = os.open(other / ".U_jobs", os.O_RDWR | os.O_CREAT)
    with WATCH.expecting() as found:
        writers = start("bash", "-c", QUEUE_BEHIND % (other / "U_jobs"))
        until(lambda: "D" in states(writers.pid), "one is stuck")
        look_again()
        assert found == []
        monkeypatch.undo()
        until(lambda: found, "it is found when it is ours")
        while writers.poll() is None:
            if other.clients("U_jobs", role="master")[0]["rlist_messages"]:
                os.read(master, 100)
    os.close(master)


def test_who_waits_for_a_message_is_not_stuck(bus: Mount, start: Start) -> None:
    bus.touch("B_x")
    for _ in range(3):
        start("cat", bus / "B_x", stdout=subprocess.DEVNULL)
    bus.wait_for_readers(3, "B_x")
    look_again()
    assert WATCH.take() == []


def test_while_the_daemon_is_stopped_nobody_is_stuck(bus: Mount, start: Start) -> None:
    """A client that is killed then is in state D until the daemon hears of it."""
    bus.touch("B_x")
    reader = start("cat", bus / "B_x")
    bus.wait_for_readers(1, "B_x")
    bus.daemon.send_signal(signal.SIGSTOP)
    until(lambda: state_of(bus.daemon.pid) == "T", "it has stopped")
    reader.kill()
    until(lambda: states(reader.pid) == "D", "it waits for the daemon")
    look_again()
    assert states(reader.pid) == "D"
    bus.daemon.send_signal(signal.SIGCONT)
    assert reader.wait(DEADLINE) == -signal.SIGKILL
    look_again()
    assert WATCH.take() == []


def test_orphans_are_watched(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    with WATCH.expecting() as found:
        shell = start("bash", "-c", f"( {QUEUE_BEHIND % (bus / 'U_jobs')} ) & exit", stdout=subprocess.DEVNULL)
        assert shell.wait(DEADLINE) == 0
        until(lambda: found, "the watch finds it")
        for _ in range(6):
            os.read(master, 100)
    os.close(master)


def test_the_stat_of_a_process_of_any_name() -> None:
    fields = "S 7 8 9 0 -1 4194304 0 0 0 0 30 12 0 0 20 0 3 0 4711 0 0"
    for name in ("bash", "a) R 1 (", ") D 1 1 1 (\n"):
        expected = Stat(name, "S", 7, 9, 42, 3, 4711)
        assert Stat.parse(f"12 ({name}) {fields}\n".encode()) == expected


def process(parent: int, session: int, state: str = "S", started: int = 1) -> Stat:
    return Stat("x", state, parent, session, 0, 1, started)


def test_who_is_watched() -> None:
    others = {
        1: process(0, 0),
        2: process(0, 0),
        3: process(2, 0),
        50: process(1, 50),
        51: process(50, 50),
        52: process(51, 50),
        60: process(1, 60),
    }
    own = {
        100: process(51, 50),  # the root: of the session of a shell, and not all of that is to be watched
        101: process(100, 50),
        102: process(100, 102),
        103: process(1, 102),  # an orphan of a session that one of them leads
        104: process(103, 104),
        105: process(1, 105),  # an orphan of a session that is known
    }
    assert relatives({**others, **own}, {}, 100, [105]) == own
    # Who was seen before stays, if it is the same.
    assert {*relatives({**others, 100: own[100]}, {60: others[60], 52: process(51, 50, started=0)}, 100, [])} == {60, 100}


def test_a_process_that_is_being_reaped_leads_to_no_others() -> None:
    """It is in the session that process 1 and the kernel's threads are in."""
    seen = {
        1: process(0, 0),
        2: process(0, 0),
        3: process(2, 0),
        50: process(1, 50),
        100: process(50, 50),
        101: process(0, 0, "X"),
    }
    assert {*relatives(seen, {101: process(100, 50)}, 100, [])} == {100, 101}


def test_which_stacks_are_inside_fuse() -> None:
    assert inside_fuse(["fuse_file_write_iter", "vfs_write"])
    assert inside_fuse(["request_wait_answer", "__fuse_simple_request"])
    assert inside_fuse(["__fuse_simple_request"])
    assert not inside_fuse(["fuse_dev_do_read", "fuse_dev_read", "vfs_read"]), "the daemon's side"
    assert not inside_fuse(["ext4_file_write_iter", "vfs_write"])
    assert not inside_fuse([])


def test_which_stacks_wait_for_a_disk() -> None:
    fault = ["__get_user_pages", "iov_iter_extract_pages", "fuse_direct_io", "fuse_file_read_iter", "do_readv"]
    slow = [
        "__folio_lock",
        "block_page_mkwrite",
        "ext4_page_mkwrite",
        "do_wp_page",
        "__handle_mm_fault",
        "handle_mm_fault",
        *fault,
    ]
    assert inside_fuse(slow)
    assert waits_for_disk(slow)
    assert not waits_for_disk(["__folio_lock", "fuse_page_mkwrite", "ext4_x", "handle_mm_fault", *fault])
    assert not waits_for_disk(["request_wait_answer", "fuse_direct_io", "ext4_x"])


def test_the_watch_never_asks_what_may_wait() -> None:
    """`cmdline`, `maps` and `mem` of a process wait for its memory's lock, which it may hold while it is stuck."""
    for module in ("processes", "watching"):
        text = (Path(__file__).parent / "helpers" / f"{module}.py").read_text()
        code = text.rpartition('"""\n\nimport')[2]
        for name in ("/cmdline", "/maps", "/mem", "/environ", "/exe", "smaps"):
            assert name not in code


def test_a_mount_that_takes_the_number_of_one_that_has_gone_is_not_aborted(mounting: Mounting) -> None:
    """Numbers of connections are used again at once, by other tests that run beside this one too."""
    others: list[Mount] = []

    def is_still_there() -> bool:
        """It is not; what it says shall make no difference."""
        bus.unmount()
        others.extend(mounting() for _ in range(3))
        return True

    for _ in range(10):
        bus = mounting()
        device = device_of(bus.path)
        assert device
        abort_connection(device.split(":")[1], is_still_there)
        assert all(other.stat() for other in others)
        if any(device_of(other.path) == device for other in others):
            return
    raise AssertionError("others have had the number each time")


def test_whether_a_daemon_still_has_its_mount_is_seen_from_outside(bus: Mount) -> None:
    [link] = [number for number, target in links_of(bus.daemon.pid) if target == "/dev/fuse"]
    assert is_connected(bus.daemon.pid, link)
    bus.daemon.send_signal(signal.SIGSTOP)
    bus.was_killed = True
    cut_connection(bus.path)
    assert not is_connected(bus.daemon.pid, link)
    bus.daemon.kill()
    bus.daemon.wait()
    assert not is_connected(bus.daemon.pid, link)


def test_thousands_that_wait_are_looked_at_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each process has open is read once in a look, not once for each that waits: one look took minutes."""
    waiting = {pid: Stat("python", "D", 1, 1, 0, 1, 0) for pid in range(100, 200)}
    looked_at: list[int] = []

    def links_of_one(pid: int) -> list[tuple[str, str]]:
        looked_at.append(pid)
        return [("3", "/dev/fuse")] if pid == 150 else []

    watch = Watch()
    watch._family = waiting
    monkeypatch.setattr(watch, "_see_family", lambda now: None)
    monkeypatch.setattr(watching, "links_of", links_of_one)
    monkeypatch.setattr(watching, "stack_of", lambda task: ["rwsem_down_write_slowpath", "fuse_file_write_iter"])
    monkeypatch.setattr(watching, "switches_of", lambda task: [])
    watch._look(0.0)
    assert len(watch._suspects) == 100
    assert all(suspect.daemons == {150: 0} for suspect in watch._suspects.values())
    assert sorted(looked_at) == [*waiting]


@pytest.mark.parametrize("moves", [True, False])
def test_a_queue_for_a_lock_that_moves_is_not_stuck(monkeypatch: pytest.MonkeyPatch, *, moves: bool) -> None:
    """Many that open one channel wait for its directory, each for long on a busy machine; a daemon sleeps between two of them."""
    watch, looks = Watch(), [0]
    watch._family = {
        150: Stat("daemon", "S", 1, 1, 0, 1, 0),
        151: Stat("has the lock", "S", 1, 1, 0, 1, 0),
        152: Stat("waits", "D", 1, 1, 0, 1, 0),
    }
    stacks = {"151": ["request_wait_answer", "fuse_dentry_revalidate", "path_openat"], "152": ["path_openat", "do_filp_open"]}
    monkeypatch.setattr(watch, "_see_family", lambda now: None)
    monkeypatch.setattr(watch, "_without_those_elsewhere", lambda tasks: tasks)
    monkeypatch.setattr(watching, "links_of", lambda pid: [("3", "/dev/fuse")] if pid == 150 else [])
    monkeypatch.setattr(watching, "connections_of", lambda pid: [])
    monkeypatch.setattr(watching, "stack_of", lambda task: stacks.get(task.partition("/")[0], []))
    monkeypatch.setattr(watching, "switches_of", lambda task: [str(looks[-1] // 5).encode()] if moves and "151" in task else [])
    while len(looks) <= 8 * PATIENCE / PAUSE:
        watch._look(looks[-1] * PAUSE)
        looks.append(len(looks))
    assert watch.total == (0 if moves else 1)
