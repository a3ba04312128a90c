"""Deliveries that a server lets in, and does not let do all that they must."""

import signal
from pathlib import Path

import pytest

from futebus.nats.consumer import BATCH

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount
from ..helpers.nats import Server, Serving
from ..helpers.waiting import until
from .links import Link, Linking
from .test_delivery import deliver, fill, wait_for

USERS = """
authorization {{
  users = [
    {{ user: rw, password: pw }}
    {{ user: n, password: pw, permissions: {{ {} }} }}
  ]
}}
"""

NOTHING = 'publish: { deny: "other" }'
PULLS = 'publish: { deny: "$JS.API.CONSUMER.MSG.NEXT.>" }'
CONFIRMATIONS = 'publish: { deny: "$JS.ACK.>" }'
CONSUMERS = 'publish: { deny: "$JS.API.CONSUMER.>" }'
ANSWERS = 'subscribe: { deny: "_INBOX.>" }'
QUESTIONS = 'publish: { deny: "$JS.API.STREAM.MSG.GET.>" }'

RELOADED = "Reloaded server configuration"


@pytest.fixture
def bounded(serving: Serving) -> Server:
    """A server with a user who may do everything."""
    return serving(USERS.format(NOTHING), jetstream=True)


def permit(server: Server, log: Path, old: str, new: str) -> None:
    """Changes what the user `n` may not do. While a server does that, it may know nobody."""
    before = log.read_text().count(RELOADED)
    server.configure(old, new)
    server.process.send_signal(signal.SIGHUP)
    until(lambda: log.read_text().count(RELOADED) > before, "it has its new configuration")


def begun(bus: Mount, linking: Linking, server: Server, place: Path, *more: str, is_ready: bool = True) -> Link:
    return deliver(linking, bus / "U_x", f"{server.as_user('n:pw')}/LINES", place, *more, is_ready=is_ready)


@pytest.mark.parametrize("denied", [PULLS, CONFIRMATIONS, CONSUMERS, ANSWERS, QUESTIONS])
@pytest.mark.parametrize("more", [(), ("--wait",)])
def test_who_may_not_take_or_confirm_ends_at_its_start(
    bus: Mount, linking: Linking, serving: Serving, collect: Collect, place: Path, denied: str, more: tuple[str, ...]
) -> None:
    master = collect(bus / ".U_x")
    server = serving(USERS.format(denied), jetstream=True)
    fill(server.as_user("rw:pw"), 10)
    words = begun(bus, linking, server, place, *more, is_ready=False).fails()
    assert "does not let us" in words
    assert words.count("\n") == 1, words
    assert not master.size


def test_who_may_not_confirm_ends_with_the_first_message(
    bus: Mount, linking: Linking, serving: Serving, collect: Collect, place: Path
) -> None:
    """It cannot know it before: only a message tells on which subject it is confirmed."""
    master = collect(bus / ".U_x")
    server = serving(USERS.format(CONFIRMATIONS), jetstream=True)
    fill(server.as_user("rw:pw"), 0)
    link = begun(bus, linking, server, place)
    fill(server.as_user("rw:pw"), 10)
    assert 'does not let us: permissions violation for publish to "$JS.ACK.>"\n' in link.fails()
    assert not master.size


@pytest.mark.parametrize("denied", [PULLS, CONFIRMATIONS, CONSUMERS, ANSWERS])
def test_what_is_taken_away_is_waited_for_and_said_once(
    bus: Mount, linking: Linking, bounded: Server, collect: Collect, place: Path, denied: str
) -> None:
    master = collect(bus / ".U_x")
    url = bounded.as_user("rw:pw")
    data = fill(url, 10)
    link = begun(bus, linking, bounded, place)
    wait_for(master, data)
    log = place / "nats1" / "nats.log"
    permit(bounded, log, NOTHING, denied)
    data += fill(url, BATCH + 10, each=1, begin=10)  # so that more are asked for at once
    link.wait_for("waiting")
    refused = log.read_text().count("Violation")
    until(lambda: log.read_text().count("Violation") >= refused + 3, "it is tried again, and refused")
    assert "there again" not in link.words
    said = [line for line in link.words.splitlines() if "does not let us" in line]
    assert said
    assert len(set(said)) == len(said)
    permit(bounded, log, denied, NOTHING)
    link.wait_for("is there again")
    wait_for(master, data)
    link.end()


ACCOUNTS = """
accounts {{
  owner {{ jetstream: enabled, users: [{{user: rw, password: pw}}], exports: [{}] }}
  guest {{ users: [{{user: n, password: pw}}], imports: [{}] }}
}}
"""

GIVEN = ("INFO", "STREAM.>", "CONSUMER.CREATE.>", "CONSUMER.DURABLE.CREATE.>", "CONSUMER.INFO.>", "CONSUMER.DELETE.>")


def test_who_is_not_heard_when_he_asks_for_messages_ends_at_its_start(
    bus: Mount, linking: Linking, serving: Serving, place: Path
) -> None:
    """What an account is given of another's JetStream lacks the subject for that: its consumer is there, and its own."""
    subjects = [f"$JS.API.{name}" for name in GIVEN]
    exports, imports = (
        ", ".join(f"{{service: {how.format(subject)}}}" for subject in subjects)
        for how in ('"{}"', '{{account: owner, subject: "{}"}}')
    )
    server = serving(ACCOUNTS.format(exports, imports), jetstream=True)
    fill(server.as_user("rw:pw"), 10)
    words = begun(bus, linking, server, place, is_ready=False).fails()
    assert "nobody there answers who asks for messages of its consumer" in words
    assert words.count("\n") == 1, words
