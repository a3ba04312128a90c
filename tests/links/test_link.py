"""Lines between buses: each once on each, in order, whatever ways they come on."""

from pathlib import Path

import pytest

from ..helpers.collectors import Collect, Collector
from ..helpers.mounts import Mount, Mounting, bash, run
from ..helpers.nats import Listening, Server, Serving
from ..helpers.programs import Start
from ..helpers.waiting import until
from .links import LINK, Linking, linked


def say(channel: Path, *lines: str) -> None:
    """Says lines with one write."""
    with open(channel, "wb", buffering=0) as out:
        out.write("".join(f"{line}\n" for line in lines).encode())


def settled(writers: list[Path], collectors: list[Collector]) -> list[bytes]:
    """Waits until all that was said before, on whatever way, has come to all. Returns what has.

    What is said last on a channel goes all the ways of what was said there before, and behind it. When it has come to all for the
    third time, so has all that goes round.

    Args:
        writers: all channels on which anything was said.
        collectors: all that hear it.
    """
    for number in range(3):
        marks = [b"mark %d of %d\n" % (number, writer) for writer in range(len(writers))]
        for writer, mark in zip(writers, marks, strict=True):
            say(writer, mark.decode().strip())
        until(lambda: all(mark in each.data for each in collectors for mark in marks), "marks come to all")  # noqa: B023 - called here
    return [b"".join(line for line in each.data.splitlines(keepends=True) if not line.startswith(b"mark")) for each in collectors]


def test_what_is_said_on_one_is_heard_on_the_other_once_and_in_order(
    mounting: Mounting, nats: Server, linking: Linking, collect: Collect, start: Start
) -> None:
    buses = [mounting(), mounting()]
    linked(linking, *((bus / "B_x", nats / "x") for bus in buses))
    heard = [collect(bus / "B_x") for bus in buses]
    writers = [
        start("bash", "-c", f'for ((i = 0; i < 200; i++)); do echo "{name} $i"; done > {bus / "B_x"}')
        for name, bus in zip("aAbB", buses * 2, strict=True)
    ]
    for writer in writers:
        assert writer.wait() == 0
    for data in settled([bus / "B_x" for bus in buses], heard):
        lines = data.decode().splitlines()
        assert len(lines) == 800
        for name in "aAbB":
            assert [line for line in lines if line[0] == name] == [f"{name} {number}" for number in range(200)]


def test_every_byte_comes_through(bus: Mount, mounting: Mounting, nats: Server, linking: Linking, collect: Collect) -> None:
    other = mounting()
    linked(linking, (bus / "B_x", nats / "a.b-c_d"), (other / "B_y", nats / "a.b-c_d"))
    there = collect(other / "B_y")
    lines = bytes(byte for byte in range(256) if byte != 10) + b"\n" + b"x" * 200_000 + b"\n\r\n"
    with open(bus / "B_x", "wb", buffering=0) as out:
        out.write(lines)
    until(lambda: len(there.data) >= len(lines), "all of it comes")
    assert there.data == lines


def test_an_outsider_hears_lines_as_written_and_says_what_he_likes(
    bus: Mount, nats: Server, linking: Linking, listening: Listening, collect: Collect
) -> None:
    linking(bus / "B_x", nats / "x")
    here, outsider = collect(bus / "B_x"), listening(nats.url, "x")
    say(bus / "B_x", "one", "two")
    outsider.wait_for(b"one\ntwo\n")
    assert outsider.number() == "1"
    for payload in (b"three", b"", b"\n\n", b"\nfour\n\n\nfive", b"\0\xff\r\n"):
        outsider.say("x", payload)
    outsider.say("x", b"six\n", {"Futebus-Origin": "nonsense", "Futebus-Line": "-7", "Else": "\u20ac"})
    until(lambda: b"six" in here.data, "all has come")
    assert here.data == b"one\ntwo\nthree\nfour\nfive\n\0\xff\r\nsix\n"
    say(bus / "B_x", "seven")
    until(lambda: outsider.messages[-1].data == b"seven\n", "it comes")
    assert outsider.number() == "3", "what others have said is not said again"


def test_runs_of_lines_are_few_messages(bus: Mount, nats: Server, linking: Linking, listening: Listening, place: Path) -> None:
    linking(bus / "B_x", nats / "x")
    outsider = listening(nats.url, "x")
    lines = b"".join(b"%099d\n" % number for number in range(20_000))
    (place / "lines").write_bytes(lines)
    assert bash(f"cat {place / 'lines'} > {bus / 'B_x'}").returncode == 0
    outsider.wait_for(lines)
    assert len(outsider.messages) < 1000
    assert all(message.data.endswith(b"\n") for message in outsider.messages)


def test_messages_are_cut_at_whole_lines_where_the_server_wants_it(
    mounting: Mounting, serving: Serving, linking: Linking, listening: Listening, collect: Collect
) -> None:
    nats = serving("max_payload: 1000")
    one, other = mounting(), mounting()
    link, _ = linked(linking, (one / "B_x", nats / "x"), (other / "B_x", nats / "x"))
    outsider, there = listening(nats.url, "x"), collect(other / "B_x")
    lines = [f"{number:099}" for number in range(1000)]
    say(one / "B_x", *lines[:500], "x" * 900, *lines[500:])
    data = "".join(f"{line}\n" for line in lines).encode()
    outsider.wait_for(data)
    until(lambda: len(there.data) >= len(data), "all others come")
    assert there.data == data
    assert all(message.data.endswith(b"\n") and len(message.data) <= 1000 for message in outsider.messages)
    link.wait_for(f"1 line not sent to {nats / 'x'}: longer than it takes (max_payload)")


def test_what_is_too_long_for_a_bus_is_counted_and_the_rest_comes(
    mounting: Mounting, nats: Server, linking: Linking, listening: Listening, collect: Collect
) -> None:
    small = mounting("max_message=1000")
    link = linking(small / "B_x", nats / "x")
    here, outsider = collect(small / "B_x"), listening(nats.url)
    outsider.say("x", b"one\n" + b"x" * 1000 + b"\ntwo\n" + b"y" * 5000 + b"\n" + b"z" * 999 + b"\n")
    outsider.say("x", b"three")
    until(lambda: b"three" in here.data, "all has come")
    assert here.data == b"one\ntwo\n" + b"z" * 999 + b"\nthree\n"
    link.wait_for(f"2 lines not said on {small / 'B_x'}: longer than the bus takes (max_message)")


@pytest.mark.parametrize("option", ["--read-only", "--write-only"])
def test_one_way_alone(bus: Mount, nats: Server, linking: Linking, listening: Listening, collect: Collect, option: str) -> None:
    linking(option, bus / "B_x", nats / "x")
    [link] = bus.clients("B_x")
    assert (link["reads"], link["writes"]) == (option == "--read-only", option == "--write-only")
    here, outsider = collect(bus / "B_x"), listening(nats.url, "x")
    say(bus / "B_x", "from here")
    outsider.say("x", b"from there\n")
    if option == "--read-only":
        until(lambda: b"from here\n" in outsider.data, "it is told")
        assert here.settled() == b"from here\n"
    else:
        until(lambda: b"from there\n" in here.data, "it is heard")
        assert outsider.data == b"from there\n", "which he has said himself"


# ---------------------------------------------------------------------------------------------- several ways


def test_two_channels_and_two_buses_of_one_host_on_one_subject(
    mounting: Mounting, nats: Server, linking: Linking, collect: Collect
) -> None:
    one, other = mounting(), mounting()
    channels = [one / "B_x", one / "B_y", other / "B_x"]
    linked(linking, *((channel, nats / "x") for channel in channels))
    heard = [collect(channel) for channel in channels]
    say(one / "B_y", *map(str, range(100)))
    assert settled([one / "B_y"], heard) == ["".join(f"{number}\n" for number in range(100)).encode()] * 3


def test_a_channel_on_two_subjects_with_others_on_both_or_one(
    mounting: Mounting, nats: Server, linking: Linking, collect: Collect
) -> None:
    """Lines come on two ways to those on both, and by way of another's channel to who is on one alone."""
    buses = [mounting() for _ in range(4)]
    ways = [("p", "q"), ("p", "q"), ("q",), ("p",)]
    words: list[list[str | Path]] = [
        [bus / "B_x", *(nats / subject for subject in way)] for bus, way in zip(buses, ways, strict=True)
    ]
    linked(linking, *words)
    heard = [collect(bus / "B_x") for bus in buses]
    for number, bus in enumerate(buses):
        say(bus / "B_x", *(f"{number} {line}" for line in range(50)))
    for data in settled([bus / "B_x" for bus in buses], heard):
        lines = data.decode().splitlines()
        assert len(lines) == 200
        for number in range(4):
            assert [line for line in lines if line[0] == str(number)] == [f"{number} {line}" for line in range(50)]


def test_a_ring(mounting: Mounting, serving: Serving, linking: Linking, collect: Collect, listening: Listening) -> None:
    """Of three buses and three subjects, on two servers. Each is joined to the next, and the last to the first."""
    east, west = serving(), serving()
    ways = [east / "p", west / "q", east / "r"]
    buses = [mounting() for _ in range(3)]
    linked(linking, *((bus / "B_x", ways[number], ways[number - 1]) for number, bus in enumerate(buses)))
    heard = [collect(bus / "B_x") for bus in buses]
    for number, bus in enumerate(buses):
        say(bus / "B_x", *(f"{number} {line}" for line in range(50)))
    listening(east.url).say("p", b"an outsider's\n")
    until(lambda: all(b"outsider" in heard[each].data for each in (0, 1)), "who is on the subject hears an outsider")
    for number, data in enumerate(settled([bus / "B_x" for bus in buses], heard)):
        lines = data.decode().splitlines()
        assert len(lines) == 150 + (number in (0, 1)), "an outsider is heard there alone: his lines have no numbers"
        assert len(set(lines)) == len(lines)


def test_a_chain(mounting: Mounting, nats: Server, linking: Linking, collect: Collect) -> None:
    ends = [mounting(), mounting()]
    middle = mounting()
    linked(
        linking,
        (middle / "B_x", nats / "p", nats / "q"),
        *((bus / "B_x", nats / subject) for bus, subject in zip(ends, "pq", strict=True)),
    )
    heard = [collect(bus / "B_x") for bus in (*ends, middle)]
    say(ends[0] / "B_x", "hello")
    assert settled([ends[0] / "B_x"], heard) == [b"hello\n"] * 3


def test_a_channel_has_one_link(bus: Mount, nats: Server, linking: Linking) -> None:
    first = linking(bus / "B_x", nats / "x")
    words = f"futebus-link: {bus / 'B_x'} has a link already, process {first.process.pid}: one is enough for several subjects\n"
    others = [linking(bus / "B_x", nats / subject, is_ready=False) for subject in "xy"]
    assert [other.fails() for other in others] == [words] * 2
    first.process.kill()
    first.process.wait()
    linking(bus / "B_x", nats / "y")


def test_the_same_bus_by_another_path_is_the_same_bus(bus: Mount, nats: Server, linking: Linking, place: Path) -> None:
    linking(bus / "B_x", nats / "x")
    other = place / "other"
    other.mkdir()
    words = f"mount --bind {bus.path} {other} && exec {' '.join(LINK)} {other}/B_x {nats / 'x'}"
    done = run("unshare", "--mount", "sh", "-c", words)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{other}/B_x has a link already" in done.stderr


def test_a_channel_that_is_removed_is_opened_anew(bus: Mount, nats: Server, linking: Linking, listening: Listening) -> None:
    link = linking(bus / "B_x", nats / "x")
    outsider = listening(nats.url, "x")
    (bus / "B_x").unlink()
    link.wait_for("its name was removed; it is opened anew")
    link.wait_for("B_x is open again")
    say(bus / "B_x", "hello")
    outsider.wait_for(b"hello\n")


def test_who_speaks_under_the_name_of_a_link_does_not_silence_it(
    mounting: Mounting, nats: Server, linking: Linking, listening: Listening, collect: Collect
) -> None:
    buses = [mounting(), mounting()]
    link, _ = linked(linking, *((bus / "B_x", nats / "x") for bus in buses))
    outsider, (here, there) = listening(nats.url, "x"), (collect(bus / "B_x") for bus in buses)
    say(buses[0] / "B_x", "one")
    outsider.wait_for(b"one\n")
    there.lines(1)
    name = (outsider.messages[-1].headers or {})["Futebus-Origin"]
    outsider.say("x", b"forged\n", {"Futebus-Origin": name, "Futebus-Line": "1000000"})
    link.wait_for("1 line came under this link's name, and were not its own: it goes on under another one")
    assert here.lines(2) == ["one", "forged"], "it is what somebody has said"
    say(buses[0] / "B_x", "two")
    assert there.lines(3) == ["one", "forged", "two"]
    until(lambda: outsider.messages[-1].data == b"two\n", "it is heard")
    assert (outsider.messages[-1].headers or {})["Futebus-Origin"] != name
    # What it has said under its first name may come back on another way, late.
    outsider.say("x", b"one\n", {"Futebus-Origin": name, "Futebus-Line": "1"})
    say(buses[1] / "B_x", "three")
    assert here.lines(4) == ["one", "forged", "two", "three"]
    link.end()
    assert link.words.count("under this link's name") == 1
