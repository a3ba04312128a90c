"""The transcripts of docs/gateways.md, typed as they are printed, at terminals."""

import itertools
import re
from pathlib import Path

from ..helpers.mounts import Mount
from ..helpers.papers import TREE, Terminal, blocks, terminals
from ..helpers.programs import Start
from ..helpers.waiting import until
from .ubuses import Service

PAGE = (TREE / "docs" / "gateways.md").read_text()


def transcript(bus: Mount, place: Path, words: str) -> list[str]:
    """The lines of the transcript that has these words, for the directories of a test."""
    [found] = [block for block in blocks(PAGE, "") if words in block]
    return found.replace("/mnt/bus", str(bus.path)).replace("/home/ann", str(place)).splitlines()


def play(terminal: Terminal, lines: list[str]) -> None:
    """Types what stands behind a prompt, and expects the lines between. Where several programs say them, they have no order."""
    for is_typed, together in itertools.groupby(lines, lambda line: line.startswith("$ ")):
        if is_typed:
            for line in together:
                terminal.type(line.removeprefix("$ "))
        else:
            terminal.expect(*together)


def test_the_text_message_bus(bus: Mount, place: Path, start: Start) -> None:
    (place / "nc").symlink_to("/bin/busybox")
    typed_at_the_peer = {"s 1 begins-with /upper", ":/upper/colour #666", "u 1"}
    with terminals(2, start, place, place) as (shell, peer):
        for line in transcript(bus, place, "futebus-tmb"):
            for terminal, text in zip((shell, peer), (part.strip() for part in line.split("|", 1)), strict=False):
                if text.startswith("futebus-tmb: "):  # the port is another one if this is taken
                    terminal.expect(text.rpartition(":")[0])
                    until(lambda: re.search(r"127\.0\.0\.1:(\d+)\n", shell.shown), "it says where")
                    port = re.findall(r"127\.0\.0\.1:(\d+)\n", shell.shown)[0]
                elif text in typed_at_the_peer and terminal is peer:
                    typed_at_the_peer.remove(text)
                    peer.type(text, to_program=True)
                elif text.startswith("$ "):
                    terminal.type(text.removeprefix("$ ").replace("4711", port if terminal is peer else "4711"))
                    if text.startswith("$ cat "):
                        bus.wait_for_readers(1, "B_shapes")
                elif text:
                    terminal.expect(text)
    assert not typed_at_the_peer


def test_sbus(bus: Mount, place: Path, start: Start) -> None:
    lines = transcript(bus, place, "futebus-sbus -fa")
    with terminals(1, start, place) as [shell]:
        play(shell, lines[:3])
        bus.wait_for_readers(1, "B_sbus")
        shell.type(lines[3].removeprefix("$ "))

        def has_subscribed() -> bool:
            (bus / "B_sbus").write_text("house/light\ton\\n\n")
            return "MSG house/light on\n" in shell.shown

        until(has_subscribed, "it has subscribed")
        # What is typed next is shown in one piece only when nobody has anything to say any more.
        (bus / "B_sbus").write_text("house/light\toff\\n\n")
        shell.expect("house/light\toff\\n\n", "MSG house/light off\n")
        play(shell, lines[4:])
        # As lines, as they are printed: a packet has no newline but what its payload has.
        until(lambda: all(f"{said}\n" in shell.shown for said in lines[4:] if not said.startswith("$ ")), "they end")


def test_a_service_and_a_property(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_upper"), terminals(1, start, place) as [shell]:
        play(shell, transcript(bus, place, "app/upper.method"))
        play(shell, transcript(bus, place, "volume.property"))
        shell.type("jobs")
        shell.expect("sed")
        assert "Stopped" not in shell.shown
