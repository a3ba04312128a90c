"""wbuf: however a text is cut, the same messages come out of it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core.errors import MessageTooLong
from futebus.core.framing import Run, WriteBuffer, length_of

MAX = 8


def feed(buffer: WriteBuffer, data: bytes) -> list[bytes]:
    """Writes `data` and accepts all that comes of it."""
    messages = []
    start = 0
    while start < len(data):
        run, stop = buffer.next_run(data, start)
        assert start < stop <= len(data)
        start = stop
        if run is not None:
            buffer.finish()
            lines = run.data.split(b"\n")
            assert lines.pop() == b""
            assert len(lines) == run.messages > 0
            messages += [line + b"\n" for line in lines]
        assert b"\n" not in buffer.partial
        assert len(buffer.partial) < MAX
    return messages


TEXTS = {
    "a line": b"abc\n",
    "lines": b"a\nbc\ndef\n",
    "empty lines": b"\n\na\n\n\nbc\n\n",
    "only empty lines": b"\n\n\n",
    "the longest": b"1234567\n1234567\n",
    "the longest between others": b"1\n1234567\n12\n1234567\n\n1234567\n",
    "bytes": b"\x00\r\n\xff\xfe\n\xc3\n",
    "nothing": b"",
}


def messages_of(text: bytes) -> list[bytes]:
    return [line + b"\n" for line in text.split(b"\n")[:-1] if line]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_fed_whole(text: bytes) -> None:
    buffer = WriteBuffer(MAX)
    assert feed(buffer, text) == messages_of(text)
    assert not buffer.partial


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_fed_in_two_pieces_split_at_each_byte(text: bytes) -> None:
    for cut in range(len(text) + 1):
        buffer = WriteBuffer(MAX)
        assert feed(buffer, text[:cut]) + feed(buffer, text[cut:]) == messages_of(text)
        assert not buffer.partial


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_fed_in_three_pieces_split_at_each_byte(text: bytes) -> None:
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            buffer = WriteBuffer(MAX)
            pieces = (text[:first], text[first:second], text[second:])
            assert [message for piece in pieces for message in feed(buffer, piece)] == messages_of(text)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_fed_byte_by_byte(text: bytes) -> None:
    buffer = WriteBuffer(MAX)
    assert [message for byte in text for message in feed(buffer, bytes([byte]))] == messages_of(text)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("trailing", [b"x", b"1234567", b"\x00"])
def test_fed_with_trailing_data(text: bytes, trailing: bytes) -> None:
    for cut in range(len(text) + 1):
        buffer = WriteBuffer(MAX)
        assert feed(buffer, text[:cut]) + feed(buffer, text[cut:] + trailing) == messages_of(text)
        assert bytes(buffer.partial) == trailing
        assert feed(buffer, b"\n") == [trailing + b"\n"]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_what_lies_before_the_start_is_not_looked_at(text: bytes) -> None:
    if not text:
        return
    for before in (b"x", b"\n", b"xxxxxxxxxxxx\n", b"x\n"):
        run, stop = WriteBuffer(MAX).next_run(before + text, len(before))
        expected, expected_stop = WriteBuffer(MAX).next_run(text, 0)
        assert (run, stop - len(before)) == (expected, expected_stop)


@pytest.mark.parametrize(
    ("room", "run", "stop"),
    [
        (None, Run(b"a\nbc\ndef\n", 3), 9),
        (100, Run(b"a\nbc\ndef\n", 3), 9),
        (9, Run(b"a\nbc\ndef\n", 3), 9),
        (8, Run(b"a\nbc\n", 2), 5),
        (5, Run(b"a\nbc\n", 2), 5),
        (4, Run(b"a\n", 1), 2),
        (2, Run(b"a\n", 1), 2),
        # The first is found even where there is no room: it may wait, or be too long.
        (1, Run(b"a\n", 1), 2),
        (0, Run(b"a\n", 1), 2),
    ],
)
@pytest.mark.parametrize("before", [b"", b"xyz\n"])
def test_a_run_ends_where_the_room_does(room: int | None, run: Run, stop: int, before: bytes) -> None:
    found, end = WriteBuffer(MAX).next_run(before + b"a\nbc\ndef\n\nx\n", len(before), room)
    assert (found, end - len(before)) == (run, stop)


@pytest.mark.parametrize(("places", "run", "stop"), [(3, b"a\nbc\ndef\n", 9), (2, b"a\nbc\n", 5), (1, b"a\n", 2), (0, b"a\n", 2)])
def test_a_run_ends_where_the_places_do(places: int, run: bytes, stop: int) -> None:
    data = b"xyz\na\nbc\ndef\n\nx\n"
    assert WriteBuffer(MAX).next_run(data, 4, 100, places) == (Run(run, run.count(b"\n")), 4 + stop)


@pytest.mark.parametrize("room", [0, 1, 100])
def test_too_long_is_too_long_whatever_the_room(room: int) -> None:
    buffer = WriteBuffer(MAX)
    with pytest.raises(MessageTooLong):
        buffer.next_run(b"12345678\n", 0, room)
    assert buffer.next_run(b"1\n12345678\n", 0, room) == (Run(b"1\n", 1), 2)


def test_messages_in_a_row_stay_one_run() -> None:
    assert WriteBuffer(MAX).next_run(b"a\nbc\ndef\ngh", 0) == (Run(b"a\nbc\ndef\n", 3), 9)
    # Longer than one message may be, all together.
    assert WriteBuffer(MAX).next_run(b"1234567\n" * 5, 0) == (Run(b"1234567\n" * 5, 5), 40)


def test_a_message_begun_earlier_is_a_run_of_its_own() -> None:
    buffer = WriteBuffer(MAX)
    feed(buffer, b"ab")
    assert buffer.next_run(b"c\nd\n", 0) == (Run(b"abc\n", 1), 2)


def test_a_run_that_was_not_finished_can_be_asked_for_again() -> None:
    buffer = WriteBuffer(MAX)
    feed(buffer, b"ab")
    for _ in range(3):
        assert buffer.next_run(b"c\nd", 0) == (Run(b"abc\n", 1), 2)
        assert bytes(buffer.partial) == b"ab"
    # Even with another end.
    assert buffer.next_run(b"x\n", 0) == (Run(b"abx\n", 1), 2)
    buffer.finish()
    assert not buffer.partial


def test_drop_forgets_the_partial_message() -> None:
    buffer = WriteBuffer(MAX)
    feed(buffer, b"ab")
    buffer.drop()
    assert feed(buffer, b"c\n") == [b"c\n"]


@pytest.mark.parametrize(
    ("begun", "data"),
    [
        (b"", b"12345678\n"),
        (b"", b"12345678"),
        (b"", b"12345678\nab\n"),
        (b"", b"123456789012345678901234567890"),
        (b"1", b"2345678\n"),
        (b"1", b"2345678"),
        (b"1234567", b"8"),
        (b"1234567", b"8\n"),
        (b"1234567", b"890123456789\n\n\n"),
    ],
)
def test_too_long(begun: bytes, data: bytes) -> None:
    buffer = WriteBuffer(MAX)
    feed(buffer, begun)
    for _ in range(2):
        with pytest.raises(MessageTooLong):
            buffer.next_run(data, 0)
        # Whether to drop it is for the caller to say.
        assert bytes(buffer.partial) == begun
    with pytest.raises(MessageTooLong):
        buffer.next_run(b"x\n" + data, 2)


@pytest.mark.parametrize("good", [b"a\n", b"a\nb\nc\n", b"1234567\n", b"1234567\n1234567\n", b"1\n1234567\n1\n1234567\n"])
@pytest.mark.parametrize("long", [b"12345678\n", b"12345678", b"1" * 100 + b"\nab\n"])
def test_the_run_ends_before_a_message_that_is_too_long(good: bytes, long: bytes) -> None:
    buffer = WriteBuffer(MAX)
    assert buffer.next_run(good + long, 0) == (Run(good, good.count(b"\n")), len(good))
    with pytest.raises(MessageTooLong):
        buffer.next_run(good + long, len(good))


@pytest.mark.parametrize("limit", [2, 3, 100])
def test_the_limit_counts_the_newline(limit: int) -> None:
    longest = b"x" * (limit - 1) + b"\n"
    assert WriteBuffer(limit).next_run(longest, 0) == (Run(longest, 1), limit)
    with pytest.raises(MessageTooLong):
        WriteBuffer(limit).next_run(b"x" + longest, 0)


def naive(chunks: list[bytes]) -> list[bytes | None]:
    """The messages of what is written, byte by byte; None for each error. After one the rest of its chunk is not written."""
    events: list[bytes | None] = []
    partial = b""
    for chunk in chunks:
        for byte in chunk:
            if byte == 0x0A:
                if partial:
                    events.append(partial + b"\n")
                partial = b""
            else:
                partial += bytes([byte])
                if len(partial) == MAX:
                    events.append(None)
                    partial = b""
                    break
    return events


CHUNKS = st.lists(
    st.lists(st.sampled_from([b"\n", b"\n\n", b"a", b"bc", b"\x00\xff", b"123456", b"1234567", b"12345678"]), max_size=8).map(
        b"".join
    ),
    max_size=6,
)


@given(CHUNKS, st.none() | st.integers(0, 30))
def test_arbitrary_chunks_against_a_naive_reader(chunks: list[bytes], room: int | None) -> None:
    buffer = WriteBuffer(MAX)
    events: list[bytes | None] = []
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            try:
                run, start = buffer.next_run(chunk, start, room)
            except MessageTooLong:
                events.append(None)
                buffer.drop()
                break
            if run:
                buffer.finish()
                assert room is None or len(run.data) <= room or run.messages == 1
                events += [line + b"\n" for line in run.data.split(b"\n")[:-1]]
    assert events == naive(chunks)


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\r", b"\n")), st.data())
def test_arbitrary_bytes_against_split(text: bytes, data: st.DataObject) -> None:
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6))), len(text)]
    buffer = WriteBuffer(1000)
    messages = []
    for begin, end in pairwise(cuts):
        start = begin
        while start < end:
            run, stop = buffer.next_run(text[begin:end], start - begin)
            start = begin + stop
            if run:
                buffer.finish()
                messages.append(run.data)
    assert b"".join(messages) == b"".join(messages_of(text))
    assert bytes(buffer.partial) == text.rpartition(b"\n")[2]


@given(st.lists(st.sampled_from([b"a\n", b"bcd\n", b"123456\n"]), min_size=1, max_size=8), st.data())
def test_length_of_the_first_messages(lines: list[bytes], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(lines)))
    assert length_of(b"".join(lines), count) == sum(map(len, lines[:count]))
