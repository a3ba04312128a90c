"""The parts of the gateway of the Text Message Bus: what reads lines, what queues, what chooses. Without sockets."""

import contextlib
import itertools
import re

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from futebus.gateways.tmb import lines as reading
from futebus.gateways.tmb.admission import HANDSHAKE_SECONDS, Handshakes
from futebus.gateways.tmb.commands import Command, CommandError, Help, Subscribe, Unsubscribe, parse
from futebus.gateways.tmb.lines import Block, Intake, are_messages, items, messages_of, pieces
from futebus.gateways.tmb.subscriptions import EVERYTHING, MAX_INSTRUCTIONS, NotPossible, Subscriptions, Wishes
from futebus.host.origins import Origin, origin

from .tmbs import split

MESSAGE = re.compile(rb":[^ \t\n\r\f\v]{1,255}[ \t\n\r\f\v]")

ODD = st.sampled_from([b":", b": ", b"\r", b"\n", b"\r\n", b":a b\n", b":" + b"c" * 255, b"s 1 r .", b" ", b"\0", b"\xff", b"d"])
BYTES = st.lists(ODD, max_size=40).map(b"".join)
WHOLE = BYTES.map(lambda data: data[: data.rfind(b"\n") + 1])


# ---------------------------------------------------------------------------------------------- lines


def naive(data: bytes, max_line: int) -> tuple[bytes, int]:
    """What an intake makes of bytes, and how many lines it skips, a last one without an end included."""
    lines = split(data)
    last = data[data.rfind(b"\n") + 1 :]
    kept = [line.removesuffix(b"\r\n") + b"\n" if line.endswith(b"\r\n") else line for line in lines if len(line) <= max_line]
    return b"".join(kept), sum(len(line) > max_line for line in lines) + (len(last) >= max_line)


@given(BYTES, st.integers(2, 300), st.lists(st.integers(0, 600), max_size=12))
def test_lines_come_whole_in_whatever_pieces(data: bytes, max_line: int, cuts: list[int]) -> None:
    expected = naive(data, max_line)
    ends = sorted(min(cut, len(data)) for cut in cuts)
    for begins, stops in (([0], [len(data)]), (range(len(data)), range(1, len(data) + 1)), ([0, *ends], [*ends, len(data)])):
        intake = Intake(max_line)
        fed = [intake.feed(data[begin:stop]) for begin, stop in zip(begins, stops, strict=True) if begin < stop]
        assert (b"".join(map(b"".join, fed)), sum(len(pieces) - 1 for pieces in fed)) == expected


def test_where_lines_were_skipped_is_seen() -> None:
    intake = Intake(4)
    assert intake.feed(b"a\nlong\nb\nlonger\nlongest\nc\nd") == [b"a\n", b"b\n", b"", b"c\n"]
    assert intake.feed(b"e\r\nf\r\nendl") == [b"de\nf\n", b""]
    assert intake.feed(b"ess") == [b""]
    assert intake.feed(b"\ng\n") == [b"g\n"]


@given(WHOLE)
def test_messages_are_told_from_other_lines(data: bytes) -> None:
    lines = split(data)
    of = [MESSAGE.match(line) is not None for line in lines]
    assert messages_of(data) == b"".join(line for line, is_message in zip(lines, of, strict=True) if is_message)
    if lines:
        assert are_messages(data) == all(of)
    found = list(items(data))
    assert b"".join(run for _, run in found) == b"".join(line for line in lines if line != b"\n")
    for are, run in found:
        assert all((MESSAGE.match(line) is not None) == are for line in split(run))
        assert are or run.count(b"\n") == 1
    assert not any(one[0] and two[0] for one, two in itertools.pairwise(found) if b"\n\n" not in data)


@given(WHOLE, st.integers(1, 40))
def test_pieces_are_whole_lines(data: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PIECE", size)
        found = list(pieces(data))
    assert b"".join(found) == data
    assert all(piece.endswith(b"\n") and (len(piece) <= size or piece.count(b"\n") == 1) for piece in found)


@pytest.mark.parametrize(
    "data",
    [b"\n" * 200_000, b":a\n" * 60_000, b":a\nb\n" * 30_000, b": \n" * 60_000, b":" * 200_000 + b"\n", b"\r\n" * 100_000],
    ids=range(6),
)
def test_nothing_takes_long_to_read(data: bytes) -> None:
    """What takes quadratic time here takes hours."""
    list(items(b"".join(Intake(1 << 30).feed(data))))
    messages_of(data)


def test_bytes_one_by_one_are_not_looked_at_again() -> None:
    intake = Intake(1 << 30)
    for _ in range(300_000):
        intake.feed(b"x")
    assert intake.feed(b"\n") == [b"x" * 300_000 + b"\n"]


# ---------------------------------------------------------------------------------------------- commands

COMMANDS: dict[bytes, Command] = {
    b"subscribe 1 regexp .": Subscribe(b"1", "regexp", b"."),
    b"s 1 r .": Subscribe(b"1", "regexp", b"."),
    b"  sub \t id  begins-w  /a  \n": Subscribe(b"id", "begins-with", b"/a"),
    b"s x e": Subscribe(b"x", "ends-with", b""),
    b"su \xff co \xff": Subscribe(b"\xff", "contains", b"\xff"),
    b"s 1 i :": Subscribe(b"1", "is", b":"),
    b"u 1": Unsubscribe(b"1"),
    b"unsubscribe 1\n": Unsubscribe(b"1"),
    b"h": Help(),
    b"help\n": Help(),
}


def test_commands() -> None:
    assert {line: parse(line) for line in COMMANDS} == COMMANDS


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"  \n",
        b"x",
        b"subscribes 1 r .",
        b"s",
        b"s 1",
        b"s 1 r a b",
        b"s 1 i",
        b"s 1 q a",
        b"u",
        b"u 1 2",
        b"h h",
        b":",
        b": a",
        b"S 1 r .",
        b"s " + b"x" * 65 + b" r .",
        b"\x1b]0;x\x07",
        b"s 1 \x1b[2J a",
    ],
)
def test_what_is_no_command_is_told_in_one_harmless_line(line: bytes) -> None:
    with pytest.raises(CommandError) as told:
        parse(line)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 200


@given(BYTES.map(lambda data: data.replace(b"\n", b" ")))
def test_every_line_is_a_command_or_refused(line: bytes) -> None:
    with contextlib.suppress(CommandError):
        parse(line)


# ---------------------------------------------------------------------------------------------- subscriptions


def chosen(wishes: Wishes, data: bytes) -> bytes:
    *pauses, messages = wishes.select(Block(data))
    assert not any(pauses)
    assert messages is not None
    return messages


STRINGS = st.sampled_from([b"", b"a", b"b", b"ab", b"/a", b"a/b", b"\xc3\xa9"])
MEETS = {
    "regexp": lambda category, string: re.search(string, category) is not None,
    "begins-with": bytes.startswith,
    "ends-with": bytes.endswith,
    "contains": lambda category, string: string in category,
    "is": bytes.__eq__,
}


@given(st.lists(st.tuples(st.sampled_from(list(MEETS)), STRINGS), max_size=4), st.lists(STRINGS.filter(bool), max_size=20))
def test_who_has_subscribed_gets_what_he_wants_once(wanted: list[tuple[str, bytes]], categories: list[bytes]) -> None:
    lines = [b":%s %d\n" % (category, number) for number, category in enumerate(categories)]
    subscriptions = Subscriptions(10)
    for number, (kind, string) in enumerate(wanted):
        subscriptions.add(b"%d" % number, kind, string)
    meet = [any(MEETS[kind](category, string) for kind, string in wanted) for category in categories]
    if lines:
        expected = b"".join(line for line, is_met in zip(lines, meet, strict=True) if is_met)
        assert chosen(subscriptions.wishes, b"".join(lines)) == expected
        assert chosen(subscriptions.wishes, b"".join(lines)) == expected, "and once more, when it is remembered"


def test_what_matches_everything_is_known_to() -> None:
    for string in [*EVERYTHING, b""]:
        subscriptions = Subscriptions(1)
        subscriptions.add(b"1", "regexp", string)
        assert subscriptions.wishes.are_all
        assert re.search(string, b"x")
        assert chosen(subscriptions.wishes, b":\xff\n") == b":\xff\n"


def test_regular_expressions_are_of_characters_and_anchored_only_where_they_say() -> None:
    subscriptions = Subscriptions(1)
    for string, expected in {b"^.$": b":\xc3\xa9\n", b"b": b":abc\n", b"^b": b"", "é".encode(): b":\xc3\xa9\n"}.items():
        subscriptions.add(b"1", "regexp", string)
        assert chosen(subscriptions.wishes, b":\xc3\xa9\n:abc\n") == expected


def test_one_that_is_replaced_or_removed_does_not_count() -> None:
    subscriptions = Subscriptions(1)
    subscriptions.add(b"1", "is", b"a")
    subscriptions.add(b"1", "is", b"b")
    with pytest.raises(NotPossible, match="at most 1"):
        subscriptions.add(b"2", "is", b"a")
    assert chosen(subscriptions.wishes, b":a\n:b\n") == b":b\n"
    assert subscriptions.remove(b"1")
    assert not subscriptions.remove(b"1")
    assert subscriptions.wishes.are_none


@pytest.mark.parametrize(
    "string", [b"(", b"\xff", b"a{1001}", b"(?P<a>", b"\\1", b"(?=a)", b"\\pL" * 60, b"(a{100}){9}(b{100}){9}", b"x" * 256]
)
def test_regular_expressions_that_are_not_taken(string: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotPossible):
        Subscriptions(1).add(b"1", "regexp", string)
    assert capfd.readouterr().err == "", "RE2 says nothing by itself"


def test_regular_expressions_are_bounded_together() -> None:
    subscriptions = Subscriptions(1000)

    def add_many() -> None:
        for number in range(MAX_INSTRUCTIONS):
            subscriptions.add(b"%d" % number, "regexp", b"(x+x+)+y")

    with pytest.raises(NotPossible, match="too big"):
        add_many()
    assert len(subscriptions) > 10


@pytest.mark.parametrize("string", [b"(x+x+)+y", b"(x|x)*y", b"(a?){100}a{100}!", b"(.*.*.*.*)*!", b"(x*)*$y"])
def test_no_regular_expression_takes_long(string: bytes) -> None:
    """With Python's own, each of these would take years."""
    subscriptions = Subscriptions(1)
    subscriptions.add(b"1", "regexp", string)
    data = b"".join(b":%s%d x\n" % (letter * 250, number) for number in range(100) for letter in (b"x", b"a"))
    assert chosen(subscriptions.wishes, data) == b""


@pytest.mark.parametrize("blank", [bytes([number]) for number in (9, 11, 12, 13, 32)])
def test_white_space_is_the_same_everywhere(blank: bytes) -> None:
    """A line that begins with a colon and a blank is no message, wherever it stands."""
    lines = b":b x\n:" + blank + b"foo\n:a y\n"
    assert messages_of(lines) == b":b x\n:a y\n"
    block = Block(messages_of(lines))
    assert len(block.categories) == len(block.lines) == 2


# ---------------------------------------------------------------------------------------------- who comes in


HERE, ANN, BEN = origin("127.0.0.1"), origin("192.0.2.1"), origin("192.0.2.2")


def test_the_oldest_handshake_gives_way() -> None:
    async def main() -> None:
        handshakes = Handshakes(most=4, per_address=2)
        ended: list[str] = []

        async def shake(name: str, who: Origin) -> None:
            with handshakes.place(who):
                await trio.Event().wait()
            ended.append(name)

        async with trio.open_nursery() as nursery:
            for name, who, gone in (
                ("ann 1", ANN, []),
                ("ann 2", ANN, []),
                ("ann 3", ANN, ["ann 1"]),  # of its own address
                ("here 1", HERE, []),
                ("here 2", HERE, []),
                ("here 3", HERE, ["ann 2"]),  # of those who have most, the first that came
                ("ben 1", BEN, ["here 1"]),
            ):
                nursery.start_soon(shake, name, who)
                await trio.testing.wait_all_tasks_blocked()
                assert ended == gone, name
                ended.clear()
            await trio.sleep(HANDSHAKE_SECONDS + 1)
            assert sorted(ended) == ["ann 3", "ben 1", "here 2", "here 3"]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
