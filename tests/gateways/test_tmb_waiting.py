"""What waits for a peer of the gateway of the Text Message Bus: bounded, in order, and what is dropped is told."""

import math
import time
from collections.abc import Iterable

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from futebus.gateways.tmb.lines import Block
from futebus.gateways.tmb.outbox import SENT, Outbox
from futebus.gateways.tmb.sorting import Backlog, Sorter
from futebus.gateways.tmb.subscriptions import Subscriptions, Wishes

from .tmbs import split

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.integers(0, 60), min_size=1, max_size=8)),
        st.tuples(st.just("answer"), st.just([3])),
        st.tuples(st.just("take"), st.just([0])),
    ),
    max_size=60,
)


@given(STEPS, st.integers(200, 2000), st.integers(10, 200))
def test_the_oldest_messages_are_dropped_and_counted_and_no_answer_is(
    steps: list[tuple[str, list[int]]], most: int, sent: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("futebus.gateways.tmb.outbox.SENT", sent)
        outbox = Outbox(most)
        said: list[bytes] = []
        answers: list[bytes] = []
        got: list[bytes] = []
        for number, (step, lengths) in enumerate(steps):
            if step == "put":
                new = [b":%d/%d %s\n" % (number, index, b"x" * length) for index, length in enumerate(lengths)]
                said += new
                outbox.put(b"".join(new))
                assert outbox.size <= most or outbox.size < len(new[-1]) + 129
            elif step == "answer":
                answers.append(b"ok %d\n" % number)
                outbox.answer(f"ok {number}\n")
            else:
                data = outbox.take()
                assert data == b"" or data.endswith(b"\n")
                got += split(data)
        while outbox:
            got += split(outbox.take())
    assert [line for line in got if line.startswith(b"ok")] == answers
    heard = [line for line in got if line.startswith(b":")]
    told = [int(line.split()[1]) for line in got if line.startswith(b"lost")]
    assert heard == [line for line in said if line in set(heard)], "in order, none twice"
    assert len(said) - len(heard) == outbox.lost == sum(told)
    if said:
        assert heard[-1] == said[-1], "the newest is kept"
    assert outbox.size == 0
    assert not outbox.is_unread


def test_a_long_run_is_taken_in_parts_of_whole_lines() -> None:
    outbox = Outbox(1 << 30)
    data = b"".join(b":a %d\n" % number for number in range(SENT // 4))
    outbox.put(data)
    taken = list(iter(outbox.take, b""))
    assert b"".join(taken) == data
    assert all(len(part) <= SENT and part.endswith(b"\n") for part in taken)


def backlogs(outboxes: Iterable[Outbox], most: int = 1 << 20) -> list[Backlog]:
    return [Backlog(outbox, most) for outbox in outboxes]


def wanting(kind: str, string: bytes) -> Wishes:
    subscriptions = Subscriptions(1)
    subscriptions.add(b"1", kind, string)
    return subscriptions.wishes


def test_answers_and_changes_stay_in_order_behind_what_is_to_be_sorted() -> None:
    outbox = Outbox(1 << 20)
    backlog = Backlog(outbox, 1 << 20)
    block = Block(b":a 1\n:b 1\n")
    assert backlog.offer(block, wanting("is", b"a"))
    backlog.answer("ok\n", Wishes())
    assert not backlog.offer(block, Wishes())
    assert backlog.offer(block, wanting("regexp", b"."))
    backlog.sort(math.inf)
    assert outbox.take() == b":a 1\nok\n:a 1\n:b 1\n"
    assert not backlog.offer(block, wanting("regexp", b".")), "nothing is to be sorted"
    assert outbox.take() == block.data


@given(st.lists(st.booleans(), max_size=30))
def test_a_backlog_is_bounded(steps: list[bool]) -> None:
    outbox = Outbox(1 << 20)
    backlog = Backlog(outbox, 40)
    wishes = wanting("is", b"a")
    answers = []
    for number, is_answer in enumerate(steps):
        if is_answer:
            answers.append(b"ok %d\n" % number)
            backlog.answer(f"ok {number}\n", wishes)
        else:
            backlog.offer(Block(b":a %d\n" % number), wishes)
    backlog.sort(math.inf)
    got = split(b"".join(iter(outbox.take, b"")))
    assert [line for line in got if line.startswith(b"ok")] == answers
    assert sum(line.startswith(b":") for line in got) + outbox.lost == steps.count(False)
    assert sum(line.startswith(b":") for line in got) <= 8


def test_who_has_much_to_sort_delays_nobody() -> None:
    """One whose subscription costs as much as can be has a queue full; another is served at once."""
    slow, quick = Outbox(1 << 30), Outbox(1 << 30)
    costly, cheap = backlogs((slow, quick), 1 << 30)
    wishes = wanting("regexp", b"([a-z]+[0-9]+)+!(x|y|z)*[^a]{20}")
    blocks = [Block(b"".join(b":%s%d-%d\n" % (b"x" * 200, number, index) for index in range(300))) for number in range(50)]

    async def main() -> None:
        sorter = Sorter()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sorter.run)
            for block in blocks:
                costly.offer(block, wishes)
            sorter.add(costly)
            await trio.testing.wait_all_tasks_blocked() if not costly else await trio.lowlevel.checkpoint()
            begin = time.perf_counter()
            cheap.offer(Block(b":a 1\n"), wanting("is", b"a"))
            sorter.add(cheap)
            while not quick:
                await trio.lowlevel.checkpoint()
            assert costly, f"it is still busy after {time.perf_counter() - begin} seconds"
            sorter.remove(costly)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert quick.take() == b":a 1\n"
