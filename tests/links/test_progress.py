"""What a delivery keeps."""

import json
from pathlib import Path

from futebus.host.slots import look
from futebus.links.progress import Progress


def test_long_names_of_spools_push_out_the_oldest(place: Path) -> None:
    progress = Progress(place / "state")
    for number in range(300):
        progress.note_lines(f"x{number:063}", 2**63 - 1)
    names = [f"x{number:063}" for number in range(300)]
    kept = list(progress.lines)
    assert kept == names[-len(kept) :]
    assert len(kept) > 100
    with (place / "state" / "lines").open("rb") as file:
        assert json.loads(look(file.fileno()) or b"") == progress.lines
