"""rlist and rbuf against a list of messages."""

import tracemalloc
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core.framing import Run
from futebus.core.mailbox import RUNS_AT_ONCE, Mailbox


@dataclass
class Naive:
    """What a mailbox is: a list, and the rest of the message that is being read."""

    max_messages: int
    max_size: int
    rlist: list[bytes] = field(default_factory=list)
    controls: int = 0
    rbuf: bytes = b""

    @property
    def counted(self) -> list[bytes]:
        """The messages that count towards the limits."""
        return [message for message in self.rlist if not message.startswith(b"{")]

    def fits(self, size: int) -> bool:
        counted = self.counted
        if not counted:
            return True
        return len(counted) + 1 <= self.max_messages and sum(map(len, counted)) + size <= self.max_size

    def fitting(self, messages: list[bytes]) -> list[bytes]:
        trial = Naive(self.max_messages, self.max_size, list(self.rlist))
        for number, message in enumerate(messages):
            if not trial.fits(len(message)):
                return messages[:number]
            trial.rlist.append(message)
        return messages

    def drop_oldest(self) -> int:
        dropped = 0
        while len(self.rlist) > 1 and (len(self.rlist) > self.max_messages or sum(map(len, self.rlist)) > self.max_size):
            del self.rlist[0]
            dropped += 1
        return dropped

    def read(self, size: int, bulk: bool) -> tuple[bytes, int] | None:
        if self.rbuf:
            piece, self.rbuf = self.rbuf[:size], self.rbuf[size:]
            return piece, 0
        if not self.rlist:
            return None
        if bulk and len(self.rlist[0]) <= size:
            pieces: list[bytes] = []
            while self.rlist and len(b"".join(pieces)) + len(self.rlist[0]) <= size:
                pieces.append(self.rlist.pop(0))
            return b"".join(pieces), len(pieces)
        message = self.rlist.pop(0)
        self.rbuf = message[size:]
        return message[:size], 1


LINE = st.sampled_from([b"a\n", b"bc\n", b"def\n", b"12345678\n", b"1234567890123\n"])
RUN = st.lists(LINE, min_size=1, max_size=7)
SIZE = st.sampled_from([1, 2, 3, 4, 5, 8, 9, 12, 20, 1000])
READ = st.tuples(st.just("read"), SIZE, st.booleans())
LIMITS = st.tuples(st.sampled_from([1, 2, 3, 5, 100]), st.sampled_from([1, 2, 5, 9, 12, 20, 1000]))


def run(lines: list[bytes]) -> Run:
    return Run(b"".join(lines), len(lines))


def put(mailbox: Mailbox, naive: Naive, lines: list[bytes]) -> None:
    """Puts messages into the real one, which must say whether there is more to do: a reader to wake, or too many to drop."""
    was_empty = not naive.rlist and not naive.rbuf
    calls_for_more = mailbox.put(run(lines))
    assert mailbox.was_empty is was_empty
    is_over = mailbox.messages > naive.max_messages or mailbox.size > naive.max_size
    assert calls_for_more or not (was_empty or is_over)


def check(mailbox: Mailbox, naive: Naive) -> None:
    counted = naive.counted
    assert mailbox.messages == len(counted)
    assert mailbox.size == sum(map(len, counted))
    assert mailbox.controls == len(naive.rlist) - len(counted)
    assert mailbox.rbuf == naive.rbuf
    assert bool(mailbox) is bool(naive.rlist or naive.rbuf)
    assert mailbox.is_full is (bool(counted) and not naive.fits(1))
    for size in (1, 2, 3, 9, 14, 1000):
        assert mailbox.fits(size) is naive.fits(size)


@given(LIMITS, st.lists(st.one_of(RUN, RUN, READ), max_size=20))
def test_a_client_s_mailbox_that_drops_the_oldest(
    limits: tuple[int, int], steps: list[list[bytes] | tuple[str, int, bool]]
) -> None:
    mailbox, naive = Mailbox(*limits), Naive(*limits)
    for step in steps:
        if isinstance(step, list):
            put(mailbox, naive, step)
            dropped = mailbox.drop_oldest()[0]
            expected = 0
            for message in step:  # a run is dropped for as its messages would be one by one
                naive.rlist.append(message)
                expected += naive.drop_oldest()
            assert dropped == expected
        else:
            _, size, bulk = step
            assert mailbox.read(size, bulk) == naive.read(size, bulk)
        check(mailbox, naive)


@given(LIMITS, st.lists(st.one_of(RUN, st.sampled_from([b"{2:o}\n", b"{1f:c}\n"]), READ, READ), max_size=20))
def test_a_master_s_mailbox_that_takes_what_fits(
    limits: tuple[int, int], steps: list[list[bytes] | bytes | tuple[str, int, bool]]
) -> None:
    mailbox, naive = Mailbox(*limits), Naive(*limits)
    for step in steps:
        if isinstance(step, list):
            fitting = mailbox.fitting(run(step))
            expected = naive.fitting(step)
            assert fitting == (run(expected) if expected else None)
            if fitting:
                put(mailbox, naive, expected)
                naive.rlist += expected
        elif isinstance(step, bytes):
            mailbox.put_control(step)
            naive.rlist.append(step)
        else:
            _, size, bulk = step
            assert mailbox.read(size, bulk) == naive.read(size, bulk)
        check(mailbox, naive)


@given(RUN, st.lists(st.tuples(SIZE, st.booleans()), max_size=30))
def test_reading_gives_back_what_was_put_in(lines: list[bytes], reads: list[tuple[int, bool]]) -> None:
    mailbox = Mailbox(1, 1)  # which limit nothing by themselves
    mailbox.put(run(lines))
    pieces = [taken[0] for size, bulk in reads if (taken := mailbox.read(size, bulk))]
    while taken := mailbox.read(1000, bulk=False):
        pieces.append(taken[0])
    assert b"".join(pieces) == b"".join(lines)
    assert not mailbox


# ---------------------------------------------------------------------------------------------- one by one


def filled(*lines: bytes, limits: tuple[int, int] = (100, 1000)) -> Mailbox:
    mailbox = Mailbox(*limits)
    mailbox.put(run(list(lines)))
    return mailbox


def drain(mailbox: Mailbox) -> list[bytes]:
    messages = []
    while taken := mailbox.read(1000, bulk=False):
        messages.append(taken[0])
    return messages


@pytest.mark.parametrize("put", [1, 2, 3, 10])
@pytest.mark.parametrize("read", [0, 1, 2])
def test_the_newest_stays_whatever_its_size(put: int, read: int) -> None:
    mailbox = filled(*[b"old\n"] * put, limits=(100, 4))
    for _ in range(min(read, put)):
        mailbox.read(100, bulk=False)
    left = mailbox.messages
    mailbox.put(run([b"far too long\n"]))
    assert mailbox.drop_oldest()[0] == left
    assert drain(mailbox) == [b"far too long\n"]


def test_the_newest_of_a_run_stays_whatever_its_size() -> None:
    mailbox = filled(b"a\n", b"b\n", b"far too long\n", limits=(100, 4))
    assert mailbox.drop_oldest()[0] == 2
    assert drain(mailbox) == [b"far too long\n"]


def test_the_only_message_stays_whatever_its_size() -> None:
    mailbox = filled(b"far too long\n", limits=(1, 1))
    assert mailbox.drop_oldest()[0] == 0
    assert drain(mailbox) == [b"far too long\n"]


def test_rbuf_is_neither_counted_nor_dropped() -> None:
    mailbox = filled(b"first\n", limits=(1, 6))
    mailbox.read(1, bulk=False)
    assert (mailbox.messages, mailbox.size, mailbox.is_full) == (0, 0, False)
    assert mailbox.fits(100)
    for number in range(3):
        mailbox.put(run([b"%d\n" % number]))
        mailbox.drop_oldest()[0]
    assert drain(mailbox) == [b"irst\n", b"2\n"]


def test_dropping_goes_on_within_a_run_that_was_read_from() -> None:
    mailbox = filled(b"0\n", b"1\n", b"2\n", b"3\n", b"4\n", limits=(3, 1000))
    mailbox.read(100, bulk=False)
    assert mailbox.drop_oldest()[0] == 1
    mailbox.put(run([b"5\n", b"6\n"]))
    assert mailbox.drop_oldest()[0] == 2
    assert drain(mailbox) == [b"4\n", b"5\n", b"6\n"]


@pytest.mark.parametrize(
    ("waiting", "lines", "limits", "fitting"),
    [
        ([], [b"a\n", b"b\n"], (2, 4), 2),
        ([], [b"a\n", b"b\n", b"c\n"], (2, 100), 2),
        ([], [b"a\n", b"b\n", b"c\n"], (100, 5), 2),
        ([], [b"too long\n", b"b\n"], (100, 3), 1),
        ([], [b"a\n", b"too long\n"], (100, 3), 1),
        ([b"a\n"], [b"too long\n"], (100, 3), 0),
        ([b"too long\n"], [b"a\n"], (100, 3), 0),
        ([b"a\n"], [b"b\n"], (1, 100), 0),
        ([b"a\n"], [b"b\n"], (2, 3), 0),
        ([b"a\n"], [b"b\n"], (2, 4), 1),
    ],
)
def test_what_fits(waiting: list[bytes], lines: list[bytes], limits: tuple[int, int], fitting: int) -> None:
    mailbox = Mailbox(*limits)
    if waiting:
        mailbox.put(run(waiting))
    assert mailbox.fitting(run(lines)) == (run(lines[:fitting]) if fitting else None)
    # Asking changes nothing.
    assert drain(mailbox) == waiting


def test_nothing_is_read_from_an_empty_mailbox() -> None:
    mailbox = Mailbox(1, 1)
    assert mailbox.read(100, bulk=False) is None
    assert mailbox.read(100, bulk=True) is None
    assert not mailbox


def test_controls_are_read_in_order_with_the_others() -> None:
    mailbox = Mailbox(100, 1000)
    mailbox.put_control(b"{2:o}\n")
    mailbox.put(run([b"a\n", b"b\n"]))
    mailbox.put_control(b"{2:c}\n")
    mailbox.put_control(b"{3:o}\n")
    assert (mailbox.messages, mailbox.controls, mailbox.size) == (2, 3, 4)
    assert mailbox.read(3, bulk=False) == (b"{2:", 1)
    assert mailbox.read(100, bulk=True) == (b"o}\n", 0)
    assert mailbox.read(10, bulk=True) == (b"a\nb\n{2:c}\n", 3)
    assert mailbox.read(100, bulk=False) == (b"{3:o}\n", 1)
    assert (mailbox.messages, mailbox.controls, mailbox.size) == (0, 0, 0)


def test_one_read_in_bulk_does_not_hand_out_any_number_of_runs() -> None:
    """It is not to be interrupted, and all others wait for it: 65,536 took 30 ms."""
    mailbox = Mailbox(1 << 16, 1 << 20)
    for number in range(RUNS_AT_ONCE * 2 + 1):
        mailbox.put(run([b"%d\n" % number]))
    reads = []
    while taken := mailbox.read(1 << 20, bulk=True):
        reads.append(taken)
    assert [messages for _, messages in reads] == [RUNS_AT_ONCE, RUNS_AT_ONCE, 1]
    assert b"".join(piece for piece, _ in reads) == b"".join(b"%d\n" % number for number in range(RUNS_AT_ONCE * 2 + 1))
    assert (mailbox.messages, mailbox.size) == (0, 0)


def test_control_messages_that_wait_cost_little() -> None:
    """A master that never reads has 65,536 of them, and somebody may have thousands of such masters."""
    mailbox = Mailbox(10, 100)
    messages = [b"{%x:o}\n" % number for number in range(10_000)]
    tracemalloc.start()
    for message in messages:
        mailbox.put_control(message)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 2 * sum(map(len, messages))
    assert mailbox.controls == 10_000
    assert mailbox.control_size == sum(map(len, messages))
    assert [mailbox.read(100, bulk=False) for _ in messages] == [(message, 1) for message in messages]
    assert (mailbox.controls, mailbox.control_size, bool(mailbox)) == (0, 0, False)
