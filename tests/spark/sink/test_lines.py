"""Values become lines: all that Arrow does at once must come out as if it had been done row by row."""

import random
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from futebus.client.channel import BLOCK
from futebus.spark.sink.lines import MAX_HELD, Columns, blocks
from futebus.spark.sink.outlet import SinkError

COLUMNS = Columns(0, 1, 2)


def batch(*rows: tuple[object, object, object], kind: object = None) -> object:
    value, channel, address = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(value, kind or pa.string()), pa.array(channel, pa.string()), pa.array(address, pa.string())],
        names=["value", "channel", "address"],
    )


def joined(*batches: object) -> dict[str, bytes]:
    lines: dict[str, bytes] = {}
    for name, block in blocks(batches, COLUMNS, None):
        assert block.endswith(b"\n")
        lines[name] = lines.get(name, b"") + block
    return lines


def one_by_one(rows: Sequence[tuple[str | None, str, str | None]]) -> dict[str, bytes]:
    lines: dict[str, bytes] = {}
    for value, channel, address in rows:
        prefix = "" if address is None else f"{{{address}}}"
        for line in (value or "").split("\n"):
            if line:
                lines[channel] = lines.get(channel, b"") + f"{prefix}{line}\n".encode()
    return lines


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("newlines", ["", "\n"], ids=["plain", "newlines"])
def test_like_row_by_row(newlines: str, kind: object) -> None:
    choose = random.Random(f"{newlines}{kind}")
    texts = ["a", "bc", "", None, "{5}x", "ü" * 20, f"x{newlines}y", f"{newlines}{newlines}z{newlines}", newlines]
    for count in (1, 2, 50, 5000):
        rows = [
            (choose.choice(texts), channel := choose.choice(["A_0", "A_1", "B_0", "U_0"]), address if channel[0] == "A" else None)
            for address in choose.choices(["1", "*", "fF", None], k=count)
        ]
        expected = one_by_one(rows)
        cut = choose.randrange(count)
        batches = [batch(*part, kind=kind) for part in (rows[:cut], rows[cut:]) if part]
        # Without addresses the empty lines within a value are left in: the bus discards them.
        assert {
            name: re.sub(b"(^|\n)\n+", b"\\1", lines) for name, lines in joined(*batches).items() if lines.strip()
        } == expected


def test_a_part_of_a_batch() -> None:
    rows = [(str(number), f"A_{number % 3}", "*") for number in range(100)]
    part = batch(*rows).slice(37, 20)  # type: ignore[attr-defined]
    assert joined(part) == one_by_one(rows[37:57])


def test_one_channel() -> None:
    values = pa.record_batch([pa.array(["x", None, "a", "b"]).slice(1)], names=["value"])
    assert list(blocks([values], Columns(0, None, None), "B_log")) == [("B_log", b"a\nb\n")]
    assert list(blocks([values.slice(0, 1), values.slice(0, 0)], Columns(0, None, None), "B_log")) == []


def test_blocks_are_full_but_the_last() -> None:
    values = [pa.record_batch([pa.array([f"{number:0999}"] * 100)], names=["value"]) for number in range(10)]
    found = [block for _, block in blocks(values, Columns(0, None, None), "B_log")]
    assert [len(block) >= BLOCK for block in found[:-1]] == [True] * 4
    assert b"".join(found) == b"".join(b"%0999d\n" % number * 100 for number in range(10))


def test_not_everything_is_held_back() -> None:
    # 1000 channels of 1000 bytes a batch: none ever has a full block.
    count = 3 * MAX_HELD // 2_000_000
    taken = 0

    def batches() -> Iterator[object]:
        nonlocal taken
        for taken in range(1, count + 1):
            yield batch(*((f"{taken:0999}", f"B_{channel}", None) for channel in range(1000)))

    found = blocks(batches(), COLUMNS, None)
    given = [next(found)]
    assert MAX_HELD <= taken * 1_000_000 < MAX_HELD + 1_000_000
    given.extend(found)
    for name in ("B_0", "B_999"):
        assert b"".join(block for channel, block in given if channel == name) == b"".join(
            b"%0999d\n" % number for number in range(1, count + 1)
        )


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (("a", None, None), "a row has no channel: its column `channel` is null"),
        (("a", "log", None), "'log' is not the name of a channel: it begins with U, S, A or B and has no slash in it"),
        (("a", "", None), "'' is not the name of a channel: it begins with U, S, A or B and has no slash in it"),
        (("a", "B/x", None), "'B/x' is not the name of a channel: it begins with U, S, A or B and has no slash in it"),
        (("a", "B\0", None), r"'B\x00' is not the name of a channel: it begins with U, S, A or B and has no slash in it"),
        (("a", "B" + "ü" * 128, None), f"the channel name 'B{'ü' * 128}' is longer than 255 bytes"),
        (("a", "B_log", "5"), "B_log takes no addresses: only A channels do"),
        (("a", "A_chat", "5g"), "A_chat: the address '5g' is neither a hexadecimal number nor *"),
        (("a", "A_chat", ""), "A_chat: the address '' is neither a hexadecimal number nor *"),
        (("a", "A_chat", "5\n"), r"A_chat: the address '5\n' is neither a hexadecimal number nor *"),
        (("a", "A_chat", "{5}"), "A_chat: the address '{5}' is neither a hexadecimal number nor *"),
    ],
)
def test_rows_that_cannot_be(row: tuple[object, object, object], sentence: str) -> None:
    with pytest.raises(SinkError, match=f"^{re.escape(sentence)}$"):
        joined(batch(("a", "B_log", None), ("b", "A_chat", "5"), row))
