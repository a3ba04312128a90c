"""What is told people: one line on standard error, if it is there."""

import io
import sys

import pytest

from futebus.spark.telling import say


def test_what_nobody_can_be_told_goes_nowhere_else(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """print() takes standard output if standard error is closed, and there may be rows."""
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stderr", None)
        say("a line")
    assert tuple(capsys.readouterr()) == ("", "")


def test_that_nobody_listens_any_more_ends_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    full = io.TextIOWrapper(open("/dev/full", "wb", buffering=0))  # noqa: SIM115 - it cannot even be closed without an error
    monkeypatch.setattr(sys, "stderr", full)
    say("a line")
    full.detach().close()
