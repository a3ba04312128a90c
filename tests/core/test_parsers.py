"""Addresses and names: what they are, what they are not, and that nothing but them is looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core import address
from futebus.core.errors import BadAddress, NameTooLong, NoChannelType
from futebus.core.framing import Run
from futebus.core.kinds import KINDS, ROUTES, Role, parse_name

HEX = b"0123456789abcdefABCDEF"

ADDRESSES = [
    (b"{5}", 5),
    (b"{1a3F}", 0x1A3F),
    (b"{0}", 0),
    (b"{00}", 0),
    (b"{0005}", 5),
    (b"{ffffffff}", 0xFFFF_FFFF),
    (b"{FFFFFFFF}", 0xFFFF_FFFF),
    (b"{100000000}", 0x1_0000_0000),
    (b"{*}", None),
]

TEXTS = [b"\n", b"hello\n", b" hello\n", b"{6}\n", b"}\n", b"\x00\xff\n"]

NO_ADDRESSES = [
    b"", b"{", b"}", b"5}", b"5", b"*", b"{}", b"{g}", b"{5", b"{5 }", b"{ 5}", b"{-5}", b"{+5}", b"{0x5}", b"{5_0}", b"{**}",
    b"{*5}", b"{5*}", b"{5,6}", b"{5:o}", b"{*:c}", b"[5]", b"(5)", b"{{5}}", b" {5}", b"\t{5}", b"\x00{5}", b"x{5}", b"{\n5}",
    b"{\xd9\xa5}", "{\N{FULLWIDTH DIGIT FIVE}}".encode(),
]  # fmt: skip


@pytest.mark.parametrize(("written", "client_id"), ADDRESSES)
@pytest.mark.parametrize("text", TEXTS)
def test_an_address_is_taken_off(written: bytes, client_id: int | None, text: bytes) -> None:
    assert address.split(written + text) == (client_id, text)


@pytest.mark.parametrize("written", NO_ADDRESSES)
@pytest.mark.parametrize("text", [b"\n", b"hello\n", b"x{5}\n"])
def test_anything_else_is_no_address(written: bytes, text: bytes) -> None:
    with pytest.raises(BadAddress):
        address.split(written + text)


@pytest.mark.parametrize("written", [written for written, _ in ADDRESSES])
def test_a_part_of_an_address_is_none(written: bytes) -> None:
    for cut in range(len(written)):
        with pytest.raises(BadAddress):
            address.split(written[:cut] + b"\n")
        with pytest.raises(BadAddress):
            address.split(written[:cut] + b"\n" + written[cut:] + b"\n")
    for cut in range(1, len(written)):
        with pytest.raises(BadAddress):
            address.split(written[cut:] + b"\n")


def naive_split(message: bytes) -> tuple[int | None, bytes] | None:
    """What an address is, byte by byte."""
    if message[:1] != b"{" or b"}" not in message:
        return None
    inside, text = message[1:].split(b"}", 1)
    if inside == b"*":
        return None, text
    if not inside or any(byte not in HEX for byte in inside):
        return None
    number = 0
    for byte in inside.lower():
        number = number * 16 + b"0123456789abcdef".index(byte)
    return number, text


@given(st.lists(st.sampled_from([b"{", b"}", b"*", b"5", b"0", b"aF", b"g", b" ", b":o", b"\x00", b"hello"]), max_size=7))
def test_split_against_a_naive_one(parts: list[bytes]) -> None:
    message = b"".join(parts) + b"\n"
    expected = naive_split(message)
    if expected is None:
        with pytest.raises(BadAddress):
            address.split(message)
    else:
        assert address.split(message) == expected


SAME = [
    ([b"{5}a"], 5, [b"a"]),
    ([b"{5}a", b"{5}b", b"{5}cd"], 5, [b"a", b"b", b"cd"]),
    ([b"{*}a", b"{*}b"], None, [b"a", b"b"]),
    ([b"{5}{5}a", b"{5}{5}"], 5, [b"{5}a", b"{5}"]),
    ([b"{5} ", b"{5}}"], 5, [b" ", b"}"]),
]

NOT_THE_SAME = [
    [b"{5}"],
    [b"{5}", b"{5}a"],
    [b"{5}a", b"{5}"],
    [b"{5}a", b"{5}", b"{5}b"],
    [b"{5}a", b"{6}b"],
    [b"{5}a", b"{*}b"],
    [b"{*}a", b"{5}b"],
    [b"{a}a", b"{A}b"],
    [b"{5}a", b"{05}b"],
    [b"{5}a", b"b"],
    [b"{5}a", b"b{5}"],
    [b"{5}a", b" {5}b"],
    [b"{5}a", b"{5}b", b"c"],
]


def run(lines: list[bytes]) -> Run:
    return Run(b"".join(line + b"\n" for line in lines), len(lines))


@pytest.mark.parametrize(("lines", "client_id", "texts"), SAME)
def test_an_address_is_taken_off_all_messages_that_have_the_same(
    lines: list[bytes], client_id: int | None, texts: list[bytes]
) -> None:
    assert address.split_run(run(lines)) == (client_id, run(texts).data)


@pytest.mark.parametrize("lines", NOT_THE_SAME)
def test_messages_with_other_addresses_or_no_text_are_for_looking_at_one_by_one(lines: list[bytes]) -> None:
    assert address.split_run(run(lines)) is None


@pytest.mark.parametrize("lines", [[b"a"], [b"a", b"{5}b"], [b"{5:o}", b"{5}b"], [b" {5}a", b"{5}b"]])
def test_the_first_message_must_have_an_address(lines: list[bytes]) -> None:
    with pytest.raises(BadAddress):
        address.split_run(run(lines))


@given(
    st.lists(
        st.tuples(st.sampled_from([b"{5}", b"{5}", b"{5}", b"{*}", b"{05}", b""]), st.sampled_from([b"a", b"b{5}", b"{5}", b""])),
        min_size=1,
        max_size=5,
    )
)
def test_split_run_against_a_naive_one(parts: list[tuple[bytes, bytes]]) -> None:
    lines = [line for written, text in parts if (line := written + text)]
    if not lines:
        return
    split = [naive_split(line) for line in lines]
    if split[0] is None:
        with pytest.raises(BadAddress):
            address.split_run(run(lines))
        return
    client_id = split[0][0]
    texts = [found[1] for found in split if found]
    prefix = lines[0].removesuffix(texts[0])
    if all(texts) and all(line.startswith(prefix) for line in lines):
        assert address.split_run(run(lines)) == (client_id, run(texts).data)
    else:
        assert address.split_run(run(lines)) is None


@given(st.integers(0, 0xFFFF_FFFF), st.binary(max_size=8))
def test_what_is_written_is_read_again(client_id: int, text: bytes) -> None:
    prefix = address.sender(client_id)
    assert prefix == prefix.lower()
    assert client_id == 0 or not prefix.startswith(b"{0")
    assert address.split(prefix + text) == (client_id, text)
    assert address.split(prefix.upper() + text) == (client_id, text)


def test_a_very_long_address_is_a_number_all_the_same() -> None:
    assert address.split(b"{" + b"0" * 100_000 + b"5}x\n") == (5, b"x\n")
    assert address.split(b"{" + b"f" * 100_000 + b"}x\n") == (16**100_000 - 1, b"x\n")


@pytest.mark.parametrize(
    ("client_id", "opened", "closed"),
    [(1, b"{1:o}\n", b"{1:c}\n"), (26, b"{1a:o}\n", b"{1a:c}\n"), (0xFFFF_FFFF, b"{ffffffff:o}\n", b"{ffffffff:c}\n")],
)
def test_control_messages(client_id: int, opened: bytes, closed: bytes) -> None:
    assert address.opened(client_id) == opened
    assert address.closed(client_id) == closed
    # Nobody can write what looks like one to a service and means it: see `test_anything_else_is_no_address`.
    for message in (opened, closed):
        with pytest.raises(BadAddress):
            address.split(message)


# ---------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("plus", [b"", b"+"])
@pytest.mark.parametrize("dot", [b"", b"."])
@pytest.mark.parametrize("letter", [b"U", b"A", b"S", b"B"])
@pytest.mark.parametrize("rest", [b"", b"_x", b".", b"+", b"U", b"\xff\n ", b"." * 200])
def test_a_name_is_read_from_its_front(plus: bytes, dot: bytes, letter: bytes, rest: bytes) -> None:
    name = plus + dot + letter + rest
    if dot and letter in b"AB":
        with pytest.raises(NoChannelType):
            parse_name(name)
        return
    parsed = parse_name(name)
    assert parsed.channel == letter + rest
    assert parsed.kind is KINDS[letter]
    assert (parsed.as_master, parsed.bulk) == (bool(dot), bool(plus))


def naive_name(name: bytes) -> tuple[bytes, bool, bool] | None:
    """The channel, whether as its master, and whether for bulk reading."""
    bulk = name[:1] == b"+"
    if bulk:
        name = name[1:]
    master = name[:1] == b"."
    if master:
        name = name[1:]
    letters = b"US" if master else b"UASB"
    if not name or name[0] not in letters:
        return None
    return name, master, bulk


@given(st.lists(st.sampled_from([b"+", b".", b"U", b"A", b"S", b"B", b"_", b"u", b"\xff"]), max_size=5))
def test_parse_name_against_a_naive_one(parts: list[bytes]) -> None:
    name = b"".join(parts)
    expected = naive_name(name)
    if expected is None:
        with pytest.raises(NoChannelType):
            parse_name(name)
    else:
        parsed = parse_name(name)
        assert (parsed.channel, parsed.as_master, parsed.bulk) == expected
        assert parsed.kind.letter == expected[0][:1]


@pytest.mark.parametrize("name", [b"B", b"+B", b".U", b"+.S", b"x"])
def test_the_whole_name_is_at_most_255_bytes(name: bytes) -> None:
    with pytest.raises(NameTooLong):
        parse_name(name.ljust(256, b"x"))
    if name != b"x":
        assert parse_name(name.ljust(255, b"x"))


# ---------------------------------------------------------------------------------------------- tables


def test_every_role_that_there_is_has_a_route() -> None:
    """The table of routes is complete, and has nothing that cannot be."""
    roles = {(kind.letter, role) for kind in KINDS.values() for role in Role if (role is Role.PEER) is not kind.has_master}
    assert set(ROUTES) == roles
    for (letter, role), route in ROUTES.items():
        assert route.to_master is (role is Role.SLAVE)
        assert route.addressed is (letter == b"A" or (letter == b"S" and role is Role.MASTER))
        assert route.stamped is (letter == b"A" or (letter == b"S" and role is Role.SLAVE))
    assert {letter for letter, kind in KINDS.items() if kind.has_master} == {b"U", b"S"}
    assert {letter for letter, kind in KINDS.items() if kind.tells_master} == {b"S"}
