"""Mount options: what is ours, what is FUSE's, what is nobody's, and what is wrong."""

import os

import pytest

from futebus.core.limits import Limits
from futebus.fuse.options import BadOption, Options, parse


def test_none_are_the_defaults() -> None:
    options = parse("")
    assert options == Options(Limits(), False, 0o1777, os.getuid(), os.getgid(), frozenset())
    assert options.for_libfuse() == {"default_permissions", "fsname=futebus", "subtype=futebus"}


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("max_queue=8", "max_queue", 8),
        ("max_queue=2k", "max_queue", 2048),
        ("max_queue_bytes=3M", "max_queue_bytes", 3 << 20),
        ("max_queue_bytes=1G", "max_queue_bytes", 1 << 30),
        ("max_message=100,max_message=200", "max_message", 200),
        ("max_clients=1,max_channels=2", "max_channels", 2),
        ("max_clients_per_user=5", "max_clients_per_user", 5),
    ],
)
def test_limits(text: str, name: str, value: int) -> None:
    assert getattr(parse(text).limits, name) == value


def test_the_directory() -> None:
    options = parse("mode=0750,uid=nobody,gid=12")
    assert (options.mode, options.uid, options.gid) == (0o750, 65534, 12)


def test_the_source_is_its_name_unless_fsname_says_otherwise() -> None:
    assert "fsname=logs" in parse("", "logs").for_libfuse()
    assert "fsname=other" in parse("fsname=other", "logs").for_libfuse()
    assert "fsname=a\\,b" in parse(r"fsname=a\,b").for_libfuse()
    assert "fsname=logs\\,allow_other" in parse("", "logs,allow_other").for_libfuse(), "it grants nothing"
    assert "fsname=a\\\\\\,b" in parse("", "a\\,b").for_libfuse()


@pytest.mark.parametrize("source", ["a\nb", "\x1b[2J", "é", "\udcff", "a\x7f"])
def test_a_source_that_cannot_be_shown_is_refused(source: str) -> None:
    with pytest.raises(BadOption, match="printable ASCII"):
        parse("", source)
    with pytest.raises(BadOption, match="printable ASCII"):
        parse(f"fsname={source}")


def test_fuses_own_pass() -> None:
    assert parse("allow_other,nosuid,rw").fuse == {"allow_other", "nosuid", "rw"}


def test_who_unmounts() -> None:
    options = parse("auto_unmount")
    assert not options.fuse, "it is not fusermount3's"
    assert options.has_unmounter
    assert not parse("").has_unmounter


def test_who_serves_it() -> None:
    options = parse("auto_unmount,user=nobody,allow_other")
    assert options.user
    assert (options.user.name, options.user.uid, options.user.gid) == ("nobody", 65534, 65534)
    assert (options.uid, options.gid) == (65534, 65534), "the directory is theirs"
    assert options.fuse == {"allow_other"}
    assert options.has_unmounter, "it is unmounted in any case"
    assert parse("user=65534").user == options.user
    assert (parse("user=nobody,uid=7,gid=8").uid, parse("user=nobody,uid=7,gid=8").gid) == (7, 8)
    assert parse("user=root").user is None, "that is who mounts"
    assert parse("user=nobody,user=root").user is None, "the last counts"


@pytest.mark.parametrize(
    "option", ["defaults", "noauto", "nofail", "_netdev", "x-systemd.requires=/a", "user", "comment=hi", "relatime", "nodiratime"]
)
def test_what_fstab_carries_for_others_is_left_out(option: str) -> None:
    assert parse(option).fuse == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "max_queue", "max_queue=", "max_queue=-1", "max_queue=1.5", "max_queue=1T", "max_queue=0", "max_queue=99999999999",
        "max_queue=٣", "bulk=1", "mode=8", "mode=17777", "mode=", "uid=-1", "uid=nobody-of-this-name", "gid=4294967295", ",",
        "user=nobody-of-this-name", "user=", "user=-1",
        "max_queue=1KB", "max_clients=9b", "fsname", "fsname=é", "context=a\nb", r"context=a\,allow_other", r"fscontext=\,",
        "remount", "remount,rw,noatime", "frob", "ro", "no_interrupt", "clone_fd", "max_read=4096", "MAX_QUEUE=1",
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadOption) as caught:
        parse(text)
    assert str(caught.value)
    assert "\n" not in str(caught.value)
