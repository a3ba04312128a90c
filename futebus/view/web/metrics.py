"""`_metrics` of several buses as one text, and the same for those who know the older form only.

The one rule: what a bus tells is read, and never passed on as it is. Any user may mount something that calls itself a bus: what
is said here of a family is what this futebus says of it, its labels are those that this futebus gives it, and what a bus has said
are their values and numbers, written anew. A family stands once, with the samples of all buses together, and each sample says
which bus it is of. One bus takes the place of no other: there is so much room, and it is shared.
"""

import contextlib
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...core.kinds import KINDS
from ...core.limits import MAX_NAME, Limits
from ...core.stat import BusStat, ChannelStat, ClientStat, Daemon, as_metrics
from ...core.stat.metrics import MOST_CHANNELS, SETTLED
from ...core.text import clipped, printable
from ...host.mounted import NoBus
from ..looking import read
from ..shares import Share

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"

ANSWERS = "futebus_answers"
"""Ours: whether a bus could be asked."""

UNTOLD = "futebus_untold_channels"

MOST_BYTES = 12 << 20
"""What a bus tells: that of 500 channels with the longest and oddest names has 9 MiB."""

MOST_LINES = 16_384
"""Of a bus: that of 500 channels has half of that."""

MOST_LINE = 32 * 1024
"""Bytes. A path of 4 KiB may need 20; all other lines are much shorter."""

MOST_MERGED = 16 << 20
"""Characters of what all buses tell together. Each has its part of it; one that needs more goes without its channels."""

BESIDE = 64
"""Characters of a sample beside its name and what its labels say, about."""

MOST_INSIDE = 64
"""How many things the daemon may tell of what it keeps."""

MOST_VALUE = {"mountpoint": 5 * 4096, "channel": 5 * MAX_NAME}
"""Characters of a label: in the worst case each byte of a name needs five."""

MOST_WORD = 100
"""Characters of any other label."""

MOST_WORDS = 100
"""Characters of what is told of who tells nonsense."""

_TYPES = frozenset(letter.decode() for letter in KINDS)

Labels = tuple[tuple[str, str], ...]
"""Names and values, the values as they stand between quotes."""

Told = Mapping[str, list[tuple[Labels, str]]]
"""What a bus tells: of each name, its samples with their values, as text."""

_NAME = re.compile("futebus_[a-z_]{1,100}")
# Nothing in these can be read in two ways, so that no text takes longer than it is long.
_LABEL = re.compile(r'([a-z_]{1,100})="([^"\\\n]*+(?:\\[\\"n][^"\\\n]*+)*+)"')
_VALUE = re.compile(r"([0-9]{1,20})(\.[0-9]{1,20})?(e[-+]?[0-9]{1,3})?")
_HEADS = (b"# TYPE ", b"# UNIT ", b"# HELP ")


class NotUnderstood(ValueError):
    """It is not what a futebus tells."""


@dataclass(frozen=True, slots=True)
class _Family:
    """What this futebus tells under a name."""

    head: str
    """The lines that begin with `#`."""
    labels: tuple[str, ...]
    """What each sample has."""

    @property
    def most(self) -> int:
        """How many samples there may be."""
        if "channel" in self.labels:
            return MOST_CHANNELS
        return len(_TYPES) if "type" in self.labels else MOST_INSIDE if "what" in self.labels else 1


@functools.cache
def _families() -> Mapping[str, _Family]:
    """All that a bus may tell, by the name of the samples."""
    client = ClientStat(b"B_x", 1, "peer", 1, 1, True, True, False, 0, 0, 0, 0, 0, 0, 0, "", 0)
    channel = ChannelStat(b"B_x", 1, "", "live", 0, 0, 0, SETTLED, 0, 0, 0, 0, 0, 0, 0, (client,))
    stat = BusStat(0, 0, False, Limits(), 1, (channel,), {})
    text = "".join(as_metrics(stat, Daemon("", "", 1, {"": 0}, lambda pid: b"")))
    found, head = {}, ""
    for line in text.splitlines(keepends=True):
        if line.startswith("# "):
            head = line if line.startswith("# TYPE ") else head + line
        else:
            found[re.split("[ {]", line, maxsplit=1)[0]] = _Family(head, tuple(name for name, _ in _LABEL.findall(line)))
    return found


def ask(mountpoint: Path, most: int = MOST_BYTES, share: Share | None = None) -> Told:
    """What a bus tells now. Waits for as long as the bus does.

    Args:
        mountpoint: where it is mounted.
        most: how many bytes it may tell.
        share: of what it takes to understand it, if there is only so much.

    Raises:
        NoBus: there is none, or it tells what no futebus does, or too much of it.
    """
    if share and share.left <= 0:
        raise NoBus(f"the bus on {mountpoint} and others of its user have told too much; try again later", None)
    text = read(mountpoint, "_metrics", most)
    try:
        with share.taken() if share else contextlib.nullcontext():
            return parsed(text)
    except NotUnderstood as error:
        raise NoBus(f"what the bus on {mountpoint} tells is not understood: {error}", None) from None


def parsed(text: bytes) -> Told:
    """What `_metrics` of a bus says. What this futebus does not know is left out: it may be of a newer one.

    Raises:
        NotUnderstood: no futebus says so.
    """
    if len(text) > MOST_BYTES or text.count(b"\n") > MOST_LINES:
        raise NotUnderstood("it is too long")
    if not text.endswith(b"# EOF\n"):
        raise NotUnderstood("it has no end")
    told: dict[str, list[tuple[Labels, str]]] = {}
    seen: set[tuple[str, Labels]] = set()
    for line in _lines(text[: -len(b"# EOF\n")]):
        found = _sample_of(line)
        if found is None:
            continue
        name, labels, value = found
        # Who tells of many buses says himself where each is: without it they must still be different.
        key = name, tuple(label for label in labels if label[0] != "mountpoint")
        samples = told.setdefault(name, [])
        if key in seen or len(samples) >= _families()[name].most:
            raise NotUnderstood(f"twice, or too often: {_clipped(line)}")
        seen.add(key)
        samples.append((labels, value))
    return told


def _lines(text: bytes) -> Iterator[str]:
    """The lines that are no heads, one at a time, none of which is too long to be looked at."""
    at = 0
    while at < len(text):
        end = text.find(b"\n", at)
        if not 0 <= end - at <= MOST_LINE:
            raise NotUnderstood("a line of it is too long")
        line, at = text[at:end], end + 1
        if line.startswith(_HEADS):
            continue
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise NotUnderstood("it is no UTF-8") from None


def _sample_of(line: str) -> tuple[str, Labels, str] | None:
    """A sample, its labels and its value as this futebus writes them; nothing if this futebus does not know the family."""
    named = _NAME.match(line)
    if not named:
        raise NotUnderstood(f"no sample: {_clipped(line)}")
    name, at = named[0], named.end()
    family = _families().get(name)
    if family is None:
        return None
    labels: list[tuple[str, str]] = []
    for place, expected in enumerate(family.labels):
        found = _LABEL.match(line, at + 1) if line[at : at + 1] == ("," if place else "{") else None
        if not found or found[1] != expected:
            raise NotUnderstood(f"other labels: {_clipped(line)}")
        labels.append((expected, _label(expected, found[2])))
        at = found.end()
    value = line.removesuffix("\n")[at:].removeprefix("}" * bool(labels))
    if len(value) != len(line) - at - bool(labels) or value[:1] != " ":
        raise NotUnderstood(f"no sample: {_clipped(line)}")
    return name, tuple(labels), _number(value[1:])


def _label(name: str, text: str) -> str:
    """A label's value, fit to be shown."""
    if len(text) > MOST_VALUE.get(name, MOST_WORD):
        raise NotUnderstood(f"{name} is too long: {_clipped(text)}")
    if name == "type" and text not in _TYPES:
        raise NotUnderstood(f"no type of channels: {_clipped(text)}")
    meant = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
    return text if meant.isprintable() else _escaped(printable(meant))


def _number(text: str) -> str:
    """A number, written anew: what is counted here is never less than nothing, and has an end."""
    found = _VALUE.fullmatch(text)
    if found:
        number = float(text) if found[2] or found[3] else int(text)
        if math.isfinite(number) and number < 1 << 64:
            return str(number)
    raise NotUnderstood(f"no number: {_clipped(text)}")


def _clipped(text: str) -> str:
    return repr(clipped(text, MOST_WORDS))


def alone(bus: str, told: Told) -> str:
    """The text of one bus.

    Args:
        bus: where it is, by our name of it: it could say that it is another one.
        told: what it tells.
    """
    own = {"mountpoint": _escaped(bus)}
    families = {
        name: [_sample(tuple((label, own.get(label, text)) for label, text in labels), value) for labels, value in samples]
        for name, samples in told.items()
    }
    return _text(families)


def merged(buses: Mapping[str, Told | None]) -> str:
    """One text of many.

    Each sample says which bus it is of, by our name of it: the bus may be known by another where it was mounted.

    Args:
        buses: what each tells, by its mountpoint; None of one that does not answer.
    """
    samples = {bus: told for bus, told in buses.items() if told is not None}
    parts = _shared({bus: _length(bus, told) for bus, told in samples.items()}, MOST_MERGED)
    for bus, part in parts.items():
        if _length(bus, samples[bus]) > part:
            samples[bus] = _without_channels(samples[bus])
            if _length(bus, samples[bus]) > part:
                del samples[bus]
    head = ""
    if buses:
        head = f"# TYPE {ANSWERS} gauge\n# HELP {ANSWERS} Whether the bus tells its metrics.\n"
        for bus in buses:
            head += f"{ANSWERS}{_sample((('mountpoint', _escaped(bus)),), str(int(bus in samples)))}\n"
    families: dict[str, list[str]] = {}
    for bus, told in samples.items():
        own = ("mountpoint", _escaped(bus))
        for name, each in told.items():
            families.setdefault(name, []).extend(
                _sample((own, *(label for label in labels if label[0] != own[0])), value) for labels, value in each
            )
    return _text(families, head)


def _length(bus: str, told: Told) -> int:
    """How long it is, about, what is told of a bus: without writing it."""
    own = len(_escaped(bus)) + BESIDE
    return sum(own + len(name) + sum(len(text) for _, text in labels) for name, each in told.items() for labels, _ in each)


def _shared(wanted: Mapping[str, int], most: int) -> dict[str, int]:
    """How much each may have of so much: what those need less than their part is there for the others."""
    parts, left = {}, most
    for count, (name, want) in enumerate(sorted(wanted.items(), key=lambda each: each[1])):
        parts[name] = left // (len(wanted) - count)
        left -= min(want, parts[name])
    return parts


def _without_channels(told: Told) -> Told:
    """What a bus tells of itself, and how many channels go without anything."""
    channels = {labels for name, samples in told.items() if "channel" in _families()[name].labels for labels, _ in samples}
    left = {name: samples for name, samples in told.items() if "channel" not in _families()[name].labels}
    untold = sum(int(float(value)) for _, value in left.get(UNTOLD, []))
    return left | {UNTOLD: [((), str(untold + len(channels)))]}


def _sample(labels: Labels, value: str) -> str:
    inner = ",".join(f'{name}="{text}"' for name, text in labels)
    return f"{{{inner}}} {value}" if inner else f" {value}"


def _text(families: Mapping[str, Iterable[str]], begin: str = "") -> str:
    pieces = [begin]
    for name, family in _families().items():
        if name in families:
            pieces.append(family.head)
            pieces.extend(f"{name}{sample}\n" for sample in families[name])
    return "".join([*pieces, "# EOF\n"])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def as_plain(text: str) -> str:
    """OpenMetrics as the text format 0.0.4: a counter's name ends in `_total` in its head too; no units, no end."""
    lines = text.split("\n")[:-1]
    counters = {line.split(" ")[2] for line in lines if line.startswith("# TYPE ") and line.endswith(" counter")}
    found = []
    for line in lines:
        if line.startswith("# UNIT ") or line == "# EOF":
            continue
        if line.startswith(("# TYPE ", "# HELP ")):
            _, word, name, rest = line.split(" ", 3)
            name += "_total" * (name in counters)
            line = f"# {word} {name} {rest}"
            if word == "HELP":
                line = line.replace('\\"', '"')
        found.append(f"{line}\n")
    return "".join(found)


def wants_plain(accept: str) -> bool:
    """Whether somebody who accepts this is to have the older form: who wants text, or is a browser."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",") if not re.search(r";\s*q=0(\.0*)?\s*$", part)}
    if "application/openmetrics-text" in kinds:
        return False
    return "text/html" in kinds or ("text/plain" in kinds and "*/*" not in kinds)
