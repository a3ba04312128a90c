"""Addresses of subjects."""

import re

import pytest

from futebus.nats import address
from futebus.nats.address import Server
from futebus.nats.errors import masked


@pytest.mark.parametrize(
    ("text", "servers", "shown"),
    [
        ("nats://host/log", [Server("nats", "host", 4222)], "nats://host:4222/log"),
        ("tls://host:1/log", [Server("tls", "host", 1)], "tls://host:1/log"),
        ("nats://[::1]:5/a.b-c", [Server("nats", "::1", 5)], "nats://[::1]:5/a.b-c"),
        ("nats://a:1,b,nats://c:3/log", [Server("nats", *each) for each in (("a", 1), ("b", 4222), ("c", 3))], None),
        ("nats://a,tls://b/x", [Server("nats", "a", 4222), Server("tls", "b", 4222)], "nats://a:4222,tls://b:4222/x"),
        ("nats://ann:s%40%2Fe@a,b/x", [Server("nats", "a", 4222, "ann", "s@/e"), Server("nats", "b", 4222)], "nats://a:4222,b:4222/x"),
        ("nats://token@a/x", [Server("nats", "a", 4222, "token")], "nats://a:4222/x"),
        ("nats:///log", [], "nats:///log"),
    ],
)  # fmt: skip
def test_addresses(text: str, servers: list[Server], shown: str | None) -> None:
    found = address.read(text)
    assert list(found.servers) == servers
    if shown:
        assert found.shown == shown
        assert address.read(found.shown).subject == found.subject


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not nats://SERVER/SUBJECT"),
        ("log", "not nats://SERVER/SUBJECT"),
        ("host/log", "not nats://SERVER/SUBJECT"),
        ("nats://host", "not nats://SERVER/SUBJECT"),
        ("nats://host/", "a subject is missing"),
        ("http://host/log", "nats:// or tls://"),
        ("ws://host/log", "nats:// or tls://"),
        ("nats://host:0/log", "not a host and a port"),
        ("nats://host:99999/log", "not a host and a port"),
        ("nats://host:x/log", "not a host and a port"),
        ("nats://[::1/log", "not a host and a port"),
        ("nats://ho st/log", "not a host and a port"),
        ("nats://a,,b/log", "missing between the commas"),
        ("nats://host/log.*", "no wildcard"),
        ("nats://host/log.>", "no wildcard"),
        ("nats://host/a/b", "no slash"),
        ("nats://host/a..b", "words with dots between"),
        ("nats://host/.a", "words with dots between"),
        ("nats://host/a b", "words with dots between"),
        ("nats://host/a\r\nPUB x 0", "words with dots between"),
        ("nats://host/$SYS.x", "the servers' own"),
        ("nats://host/_INBOX.x", "are for answers"),
        ("nats://host/\udc80", "UTF-8"),
        ("nats://host/" + "x" * 1001, "at most 1000 bytes"),
    ],
)
def test_what_is_no_address(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        address.read(text)


@pytest.mark.parametrize(
    "text",
    [
        "nats://ann:secret@",
        "nats://ann:secret@host:x/log",
        "ann:secret@host/log",
        "nats://ann:sec/secret@h/log",
        "x://a:secret@b/c",
    ],
)
def test_no_complaint_has_a_password(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as raised:
        address.read(text)
    assert "secret" not in str(raised.value)
    assert "secret" not in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "nats://ann:se/cret@h/log",
        "nats://ann:se,cret@h/log",
        "nats://tok/en-secret@h/log",
        "nats://ann:4242/secret@h/log",
        "nats://h/ann:secret@log",
        "ann:secret@h",
        "nats://ann:secret@h:port/log",
        "nats://ann:secret@h,/log",
        "foo://ann:secret@h/log",
    ],
)
def test_what_is_wrong_with_an_address_is_said_without_a_password(text: str) -> None:
    reads = [address.read, *([address.read_servers] if "," in text else [])]
    for read in reads:
        with pytest.raises(ValueError, match="nats://") as caught:
            read(text)
        shown = str(caught.value).partition("@: ")[2]
        assert shown
        assert not [word for word in ("ann", "se", "cret", "tok", "4242") if word in shown]


@pytest.mark.parametrize(
    ("subject", "subjects", "is_within"),
    [
        ("a.b", ["a.b"], True),
        ("a.b", ["x", "a.*"], True),
        ("a.b", ["a.>"], True),
        ("a.b.c", ["a.*"], False),
        ("a", ["a.>"], False),
        ("a.>", ["a.>"], True),
        ("a.>", [">"], True),
        ("a.>", ["a.*"], False),
        ("a.*", ["a.b"], False),
        ("a.*", ["*.*"], True),
        ("a", [], False),
    ],
)
def test_what_is_among_subjects(subject: str, subjects: list[str], is_within: bool) -> None:
    assert address.is_within(subject, subjects) == is_within


def test_streams() -> None:
    found = address.read_stream("nats://h/LINES/lines.*.x.>", is_filter=True)
    assert (found.stream, found.subject, found.shown) == ("LINES", "lines.*.x.>", "nats://h:4222/LINES/lines.*.x.>")
    assert address.read_stream("nats://h/LINES").subject is None
    for text in ("nats://h/LINES/a.>.b", "nats://h/LINES/a*", "nats://h/LINES/a>", "nats://h/LI.NES/a", "nats://h//a"):
        with pytest.raises(ValueError, match=r"\S"):
            address.read_stream(text, is_filter=True)
    with pytest.raises(ValueError, match="no wildcard"):
        address.read_stream("nats://h/LINES/lines.>")
