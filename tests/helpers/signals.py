"""Signals that this process sends itself while it does something, and what their handlers do."""

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from .garbage import nothing_collected
from .waiting import DEADLINE

Handler = Callable[[], object]


@contextlib.contextmanager
def at_a_signal(
    wait: Callable[[], object], do: Handler, *, number: int = signal.SIGUSR1, repeats: bool = False
) -> Iterator[None]:
    """Has the handler of a signal do something.

    Args:
        wait: waits, in another thread, until the signal is to be sent.
        do: what the handler does.
        number: the signal.
        repeats: whether it is sent again and again, until `wait` returns something false.
    """

    def kill() -> None:
        while wait() or not repeats:
            os.kill(os.getpid(), number)
            if not repeats:
                break

    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(number, lambda *_: do())
    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    try:
        yield
    finally:
        killing.join(DEADLINE)
        signal.signal(number, before)


class Interrupt(Exception):
    """What the handler of a signal raises."""


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupt


@contextlib.contextmanager
def interrupted(
    code: CodeType,
    is_there: Callable[[FrameType], object] = lambda frame: True,
    handle: Callable[[int, FrameType | None], object] = _raise,
) -> Iterator[list[bool]]:
    """Has the handler of a signal do something, or raise, where a function is first at a place, or called if it is any."""
    hits: list[bool] = []

    def interrupt(frame: FrameType) -> None:
        if not hits and is_there(frame):
            hits.append(True)
            sys.settrace(None)
            signal.raise_signal(signal.SIGUSR1)

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code is not code:
            return None
        interrupt(frame)
        return step

    def step(frame: FrameType, event: str, arg: object) -> Any:
        interrupt(frame)
        return step

    was = signal.signal(signal.SIGUSR1, handle)
    tracing = sys.gettrace()
    with nothing_collected():
        sys.settrace(enter)
        try:
            yield hits
        finally:
            sys.settrace(tracing)
            signal.signal(signal.SIGUSR1, was)


def _is_within(frame: FrameType, package: str) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(package)


@contextlib.contextmanager
def at_a_place(place: int, package: str, do: Handler) -> Iterator[list[str]]:
    """Has something done where CPython runs handlers of signals, at a place of so many.

    Args:
        place: which, from 0 on: behind calls of the functions of a package, and where those begin.
        package: the beginning of the names of its modules.
        do: what is done.

    Returns:
        Where that was; empty as long as it was not.
    """
    places, hits = itertools.count(), list[str]()

    def look(frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_return") and _is_within(frame, package) and next(places) == place:
            hits.append(frame.f_code.co_name)
            sys.setprofile(None)
            do()

    with nothing_collected():
        sys.setprofile(look)
        try:
            yield hits
        finally:
            sys.setprofile(None)


@contextlib.contextmanager
def interrupted_twice(place: int, package: str, do: Handler = lambda: None) -> Iterator[list[str]]:
    """Does something at a place, as `at_a_place` does, and raises there, and once more where the next function begins."""

    def first() -> None:
        try:
            do()
        finally:
            sys.settrace(second)
        raise Interrupt

    def second(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and _is_within(frame, package):
            hits.append(frame.f_code.co_name)
            sys.settrace(None)
            raise Interrupt

    with nothing_collected():
        try:
            with at_a_place(place, package, first) as hits:
                yield hits
        finally:
            sys.settrace(None)
