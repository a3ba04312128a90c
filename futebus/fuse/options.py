"""The mount options: ours, FUSE's, and those that fstab lines carry for others."""

import difflib
import grp
import os
import pwd
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from futebus.core.limits import SIZES, Limits
from futebus.core.quantities import MOST_ID, amount, natural, octal, size

from .privilege import User

# What libfuse and the kernel know, and makes sense here. default_permissions, subtype and the like are ours to set.
_FUSE_FLAGS = frozenset(
    "allow_other allow_root auto_unmount rw suid nosuid dev nodev exec noexec atime noatime sync async dirsync "
    "default_permissions nonempty".split()
)
_LABELS = frozenset("context fscontext defcontext rootcontext".split())
_FUSE_VALUES = _LABELS | {"fsname"}

# For mount(8), systemd and the like, or for file systems that keep times on a disk.
_OTHERS = re.compile(
    r"(defaults|auto|noauto|user(?!=)|nouser|users|owner|group|nofail|_netdev|[xX]-[^=]+|comment"
    r"|(no)?relatime|(no)?diratime|(no)?lazytime|(no)?strictatime|(no)?iversion|silent|loud)(=.*)?",
    re.DOTALL,
)

OWN = ("bulk", "mode", "uid", "gid", "user")
"""Options of ours that are no limits."""

ALIKE = 0.8
"""How much like a name another must be to be taken for a slip of it, from 0 to 1."""

_REFUSED = {
    "ro": "a bus cannot be read-only: programs could neither write nor create channels",
    "no_interrupt": "without interrupts a signal could not end a blocked read or write",
    "remount": "a bus keeps the options that it was mounted with; unmount it and mount it anew",
    "clone_fd": "futebus serves all requests from one descriptor",
}


class BadOption(Exception):
    """A mount option is unknown or its value is wrong. The text is for people."""


@dataclass(frozen=True)
class Options:
    """What a bus is mounted with."""

    limits: Limits = field(default_factory=Limits)
    bulk: bool = False
    """Every client reads in bulk, as if it had opened `+NAME`."""
    mode: int = 0o1777
    """The directory's permission bits: by default everybody may create channels, and remove only their own."""
    uid: int = field(default_factory=os.getuid)
    gid: int = field(default_factory=os.getgid)
    fuse: frozenset[str] = frozenset()
    """Passed on to libfuse."""
    user: User | None = None
    """Who serves the bus, if root mounts it for somebody else."""
    has_unmounter: bool = False
    """Whether a process waits for the daemon's end to unmount the bus. fusermount3 has one for `auto_unmount` too, which looks at
    the mount while the daemon dies, and mostly too soon."""

    def for_libfuse(self) -> set[str]:
        """The options that libfuse gets."""
        own = {"default_permissions", "subtype=futebus"}
        if not any(option.startswith("fsname=") for option in self.fuse):
            own.add("fsname=futebus")
        return own | self.fuse


def parse(text: str, source: str | None = None) -> Options:
    r"""Reads `-o` options: comma-separated, `\,` for a comma in a value, the last of two that disagree counts.

    Args:
        text: the options.
        source: what fstab calls the file system; shown as its name.

    Raises:
        BadOption: see there.
    """
    limits: dict[str, int] = {}
    own: dict[str, int | bool] = {}
    passed = {"fsname": _for_libfuse("fsname", source)} if source else {}
    user = None
    limit_names = {limit.name for limit in fields(Limits)}
    options = list(_split(text))
    if "remount" in options:  # newer versions of mount(8) add what the kernel shows, which nobody has given
        options = ["remount"]
    for option in options:
        name, equals, value = option.partition("=")
        if name in limit_names:
            limits[name] = _value(option, value, size if name in SIZES else amount)
        elif name == "bulk" and not equals:
            own["bulk"] = True
        elif name == "mode":
            own["mode"] = _value(option, value, _mode)
        elif name == "uid":
            own["uid"] = _value(option, value, _user)
        elif name == "gid":
            own["gid"] = _value(option, value, _group)
        elif name == "user" and equals:
            user = _servant(option, value)
        elif name in _REFUSED:
            raise BadOption(f"option {name}: {_REFUSED[name]}")
        elif _OTHERS.fullmatch(option):
            continue
        elif (name in _FUSE_FLAGS and not equals) or (name in _FUSE_VALUES and value):
            passed[name] = _for_libfuse(name, value) if equals else name
        else:
            raise BadOption(_unknown(option, limit_names) if option else "an empty option")
    passed.pop("nonempty", None)  # FUSE 2's; FUSE 3 always mounts so
    try:
        checked = Limits(**limits)
    except ValueError as error:
        raise BadOption(f"option {error}") from None
    if user:
        own.setdefault("uid", user.uid)
        own.setdefault("gid", user.gid)
    is_automatic = passed.pop("auto_unmount", None) is not None
    return Options(
        limits=checked,
        fuse=frozenset(passed.values()),
        user=user,
        has_unmounter=is_automatic or user is not None,
        **own,  # type: ignore[arg-type]
    )


def _unknown(option: str, limit_names: set[str]) -> str:
    known = {*limit_names, *OWN, *_FUSE_FLAGS, *_FUSE_VALUES}
    meant = difflib.get_close_matches(option.partition("=")[0], sorted(known), 1, ALIKE)
    return f"unknown option {option!r}{f': is {meant[0]} meant?' if meant else ''} (see futebus --help)"


def _for_libfuse(name: str, value: str) -> str:
    """An option with a value, as libfuse reads it: whatever is in the value, it is one option.

    Raises:
        BadOption: the value cannot be passed on.
    """
    if not (value.isascii() and value.isprintable()):
        raise BadOption(f"option {name}={value!r}: only printable ASCII can be shown as a name")
    if name in _LABELS and "," in value:
        raise BadOption(f"option {name}={value!r}: the kernel would take what follows the comma for another option")
    escaped = value.replace("\\", "\\\\").replace(",", "\\,")
    return f"{name}={escaped}"


def _split(text: str) -> Iterator[str]:
    if text:
        for option in re.split(r"(?<!\\),", text):
            yield option.replace("\\,", ",")


def _value(option: str, value: str, read: Callable[[str], int]) -> int:
    try:
        return read(value)
    except ValueError as error:
        raise BadOption(f"option {option!r}: {str(error).removesuffix(f': {value!r}')}") from None


def _servant(option: str, value: str) -> User | None:
    """Who is to serve the bus; None if that is who mounts it."""
    try:
        user = User.named(value)
    except KeyError:
        raise BadOption(f"option {option!r}: no such user") from None
    if user.uid == os.getuid():
        return None
    if os.geteuid():
        raise BadOption(f"option {option!r}: only root can mount a bus for somebody else")
    return user


def _mode(text: str) -> int:
    return octal(text, 0o7777)


def _user(value: str) -> int:
    try:
        return _id(value) if value.isdecimal() else pwd.getpwnam(value).pw_uid
    except KeyError:
        raise ValueError("no such user") from None


def _group(value: str) -> int:
    try:
        return _id(value) if value.isdecimal() else grp.getgrnam(value).gr_gid
    except KeyError:
        raise ValueError("no such group") from None


def _id(value: str) -> int:
    number = natural(value, MOST_ID)
    if number is None:
        raise ValueError("no such ID")
    return number
