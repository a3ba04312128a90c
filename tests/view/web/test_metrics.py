"""`/metrics`: what parsers of both forms take, for one bus and for several."""

import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families

from futebus.core.text import escape
from futebus.host.mounted import NoBus
from futebus.view.shares import MOST_LEFT, Share
from futebus.view.web import metrics
from futebus.view.web.metrics import (
    MOST_BYTES,
    MOST_LINES,
    OPEN_METRICS,
    PLAIN,
    NotUnderstood,
    Told,
    alone,
    as_plain,
    ask,
    merged,
    parsed,
    wants_plain,
)

from ...helpers.mounts import Mount, Mounting
from ...helpers.programs import Start
from .webs import Web


def parse_open(text: str) -> Iterator[Metric]:
    found: Iterator[Metric] = open_parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return found


def parse_plain(text: str) -> Iterator[Metric]:
    return iter(text_string_to_metric_families(text))


def test_one_bus_and_several(mounting: Mounting, place: Path, start: Start) -> None:
    one, two = mounting(), mounting()
    (one.touch("B_x")).write_bytes(b"abc\nde\n")
    missing = place / 'no "bus"\\here'
    served = Web(start, place, one.path, two.path, missing)
    answer = served.ask("/metrics")
    assert answer.headers["content-type"] == OPEN_METRICS
    families = {family.name: family for family in parse_open(answer.text)}
    answers = {sample.labels["mountpoint"]: sample.value for sample in families["futebus_answers"].samples}
    assert answers == {str(one.path): 1, str(two.path): 1, escape(bytes(missing)): 0}
    counted = {
        (sample.labels["mountpoint"], sample.labels["type"]): sample.value for sample in families["futebus_messages"].samples
    }
    assert counted[str(one.path), "B"] == 2
    assert counted[str(two.path), "B"] == 0
    info = families["futebus_info"].samples
    assert {sample.labels["mountpoint"] for sample in info} == {str(one.path), str(two.path)}
    assert families["futebus_uptime_seconds"].unit == "seconds"

    alone = served.ask(f"/metrics?bus={two.path}")
    assert alone.headers["content-type"] == OPEN_METRICS
    assert all(
        "mountpoint" not in sample.labels for sample in {f.name: f for f in parse_open(alone.text)}["futebus_messages"].samples
    )
    assert served.ask("/metrics?bus=/etc").status == 404
    assert served.ask(f"/metrics?bus={missing}".replace(" ", "%20").replace('"', "%22").replace("\\", "%5C%5C")).status == 502

    for path in ("/metrics", f"/metrics?bus={one.path}"):
        plain = served.ask(path, {"Accept": "text/plain"})
        assert plain.headers["content-type"] == PLAIN
        assert "# EOF" not in plain.text
        assert "# UNIT" not in plain.text
        assert "# TYPE futebus_messages_total counter\n" in plain.text
        told = {family.name: family for family in parse_plain(plain.text)}
        assert told["futebus_messages"].type == "counter"
        assert sum(sample.value for sample in told["futebus_messages"].samples) == 2
    head = served.ask("/metrics", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    served.end()


def test_without_a_bus(place: Path, start: Start) -> None:
    served = Web(start, place, place / "none")
    families = [family.name for family in parse_open(served.ask("/metrics").text)]
    assert families == ["futebus_answers"]
    served.end()


TEXT = """\
# TYPE futebus_info gauge
# HELP futebus_info The bus; always 1.
futebus_info{version="1",mountpoint="/else, \\"where\\""} 1
# TYPE futebus_channel_messages counter
# HELP futebus_channel_messages Of an older futebus \\"words\\".
futebus_channel_messages_total{channel="B} 1, {\\\\\\"\\n",type="B"} 7
futebus_channel_messages_total{channel="B_log,mountpoint=",type="B"} 8
futebus_channel_messages_total{channel=",mountpoint=\\"x\\",",type="B"} 9.5e+3
# TYPE futebus_of_tomorrow gauge
futebus_of_tomorrow 1
# EOF
"""


def test_texts_are_merged_by_families() -> None:
    told = parsed(TEXT.encode())
    text = merged({"/a": told, '/b\\"\n': told, "/c": None})
    families = {family.name: family for family in parse_open(text)}
    assert list(families) == ["futebus_answers", "futebus_info", "futebus_channel_messages"]
    assert [sample.labels["mountpoint"] for sample in families["futebus_info"].samples] == ["/a", '/b\\"\n']
    samples = [
        (sample.labels["channel"], sample.labels["type"], sample.labels["mountpoint"], sample.value)
        for sample in families["futebus_channel_messages"].samples
    ]
    names = {'B} 1, {\\\\"\\n': 7, "B_log,mountpoint=": 8, ',mountpoint="x",': 9500}
    assert samples == [(name, "B", bus, value) for bus in ("/a", '/b\\"\n') for name, value in names.items()]
    assert merged({}) == "# EOF\n"
    by_itself = {family.name: family for family in parse_open(alone('/b\\"\n', told))}
    labels = {"version": "1", "mountpoint": '/b\\"\n'}
    assert by_itself["futebus_info"].samples[0].labels == labels, "it has said that it is somewhere else"
    plain = {family.name: family for family in parse_plain(as_plain(text))}
    assert plain["futebus_channel_messages"].documentation.startswith("Messages accepted"), "our words, not those of the bus"
    assert as_plain("# EOF\n") == ""


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"futebus_info 1\n",
        b"\xff\n# EOF\n",
        b"# x\n# EOF\n",
        b"# EOF\nfutebus_info 1\n# EOF\n",
        b"EOF\n# EOF\n",
        b"TYPE futebus_channels counter\n# EOF\n",
        b"futebus_info nonsense\n# EOF\n",
        b"futebus_info NaN\n# EOF\n",
        b"other_info 1\n# EOF\n",
        b"futebus_info 1\nfutebus_info 2\n# EOF\n",
        b'futebus_channels{type="B",x="1"} 1\nfutebus_channels{x="1",type="B"} 2\n# EOF\n',
        b'futebus_info{a="b",a="c"} 1\n# EOF\n',
        b'futebus_info{a="b} 1\n# EOF\n',
        b'futebus_info{a="b"c="d"} 1\n# EOF\n',
        b'futebus_info{a="\\x"} 1\n# EOF\n',
        b"futebus_info 1 1700000000\n# EOF\n",
        b"#" * MOST_BYTES + b"\n# EOF\n",
        b"\n" * 10 + b"# EOF\n",
        b"futebus_of_tomorrow 1\n" * (MOST_LINES + 1) + b"# EOF\n",
        b"futebus_channels 1\n# EOF\n",
        b'futebus_channels{type="X"} 1\n# EOF\n',
        b'futebus_channels{type="B",} 1\n# EOF\n',
        b'futebus_channels{type="B" 1\n# EOF\n',
        b'futebus_channels{type="B"}} 1\n# EOF\n',
        b'futebus_channels{__name__="B"} 1\n# EOF\n',
        b'futebus_channels{type="B",type="A"} 1\n# EOF\n',
        b'futebus_channel_copies_total{type="B",channel="B"} 1\n# EOF\n',
        b'futebus_channels{type="B"} -1\n# EOF\n',
        b'futebus_channels{type="B"} 1e+999\n# EOF\n',
        b'futebus_channels{type="B"} 1.e3\n# EOF\n',
        b'futebus_channels{type="B"} 99999999999999999999\n# EOF\n',
        b'futebus_channels{type="B"}\t1\n# EOF\n',
        b"futebus_uptime_seconds 1\nfutebus_uptime_seconds 1.0\n# EOF\n",
        b'futebus_info{version="1",mountpoint="/a"} 1\nfutebus_info{version="1",mountpoint="/b"} 1\n# EOF\n',
        b'futebus_inside{what="%s"} 1\n# EOF\n' % (b"x" * 101),
        b"".join(b'futebus_inside{what="%d"} 1\n' % number for number in range(65)) + b"# EOF\n",
        b"".join(b'futebus_channel_clients{channel="B%d",type="B"} 1\n' % n for n in range(501)) + b"# EOF\n",
    ],
    ids=lambda text: repr(text[:40]),
)
def test_what_no_futebus_tells_is_not_passed_on(text: bytes) -> None:
    with pytest.raises(NotUnderstood):
        parsed(text)


def test_a_line_costs_what_it_is_long() -> None:
    tracemalloc.start()
    try:
        for line in (b"futebus_x{", b'futebus_channels{type="', b"futebus_x ", b'futebus_channels{type="\\'):
            text = line + b"a" * (MOST_BYTES - 100) + b"\n# EOF\n"
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            with pytest.raises(NotUnderstood, match="a line of it is too long"):
                parsed(text)
            assert tracemalloc.get_traced_memory()[1] - before < 2 * MOST_BYTES
    finally:
        tracemalloc.stop()


def test_no_name_draws_on_a_terminal() -> None:
    sample = 'futebus_channel_clients{channel="%s",type="B"} 1\n'
    names = ("B\x1b]0;x\x07", "B\x7f", "B\u202e", "B\u2028", "B\x85", "B\x0b", "B\r")
    told = parsed(("".join(sample % name for name in names) + "# EOF\n").encode())
    for text in (alone("/a", told), merged({"/a": told}), as_plain(merged({"/a": told}))):
        assert text.replace("\n", "").isprintable()
        assert len(text.splitlines()) == len(text.split("\n")) - 1
    with pytest.raises(NotUnderstood, match="twice"):
        parsed((sample % "B\x1b" + sample % "B\\\\x1b" + "# EOF\n").encode())


def lying(channels: int, name: str) -> Told:
    lines = [
        f'{family}{{channel="B{number}{name}",type="B"}} 1\n'
        for family, known in metrics._families().items()
        if "channel" in known.labels
        for number in range(channels)
    ]
    return parsed(("futebus_untold_channels 3\n" + "".join(lines) + "# EOF\n").encode())


def test_one_bus_leaves_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_MERGED", 1 << 20)
    small, large = lying(3, ""), lying(500, "x" * 200)
    long = "/" + "\\" * 20_000
    text = merged({"/small": small, "/large": large, "/huge": large, long: large})
    assert len(text) < 1 << 20
    families = {family.name: family for family in parse_open(text)}
    assert {sample.labels["mountpoint"] for sample in families["futebus_channel_clients"].samples} == {"/small"}
    untold = {sample.labels["mountpoint"]: sample.value for sample in families["futebus_untold_channels"].samples}
    assert (untold["/small"], untold["/large"], untold["/huge"]) == (3, 503, 503)


def test_what_a_bus_tells_is_read_back(bus: Mount) -> None:
    writer = os.open(bus / 'B_"\\\xa0\U0001f600,} 1', os.O_WRONLY | os.O_CREAT)
    os.write(writer, b"x\n")
    text = (bus / "_metrics").read_text()
    assert alone(str(bus.path), parsed(text.encode())) == text
    os.close(writer)


@pytest.mark.parametrize(
    ("accept", "is_plain"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", True),
        ("text/plain; version=0.0.4", True),
        ("text/plain, */*;q=0", True),
        ("text/plain, */*", False),
        ("application/openmetrics-text; version=1.0.0, text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0, text/plain", True),
        ("text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("application/json", False),
    ],
)
def test_who_wants_which_form(accept: str, is_plain: bool) -> None:
    assert wants_plain(accept) is is_plain


def test_who_has_told_too_much_is_not_asked(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("futebus.view.shares.SHARE", 0.0)
    share = Share()
    assert ask(bus.path, share=share).keys() == ask(bus.path).keys()
    assert share.left < MOST_LEFT, "it has taken some of it"
    share._noted = -1.0, time.monotonic()
    with pytest.raises(NoBus, match="have told too much"):
        ask(bus.path, share=share)
