"""Fixtures: mounted buses, and programs that do not outlive their test.

How hard Hypothesis tries: `FUTEBUS_EXAMPLES=5000` for a long night.
"""

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from .helpers import forked, java
from .helpers.mounts import Mount, Mounting, device_of
from .helpers.sysctls import unchanged
from .helpers.watching import WATCH

pytest_plugins = [
    "tests.helpers.collectors",
    "tests.helpers.durable",
    "tests.helpers.hostile",
    "tests.helpers.programs",
    "tests.helpers.recorders",
    "tests.helpers.sparks",
    "tests.helpers.users",
]

settings.register_profile(
    "futebus",
    max_examples=int(os.environ.get("FUTEBUS_EXAMPLES", "200")),
    stateful_step_count=50,
    # All but `explain`, which takes longer than the rest together on a long history of calls.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    # A busy machine is no failure.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("futebus")

LOG_SHOWN = 4000
"""How much of each log is shown when a test has failed, in characters."""


def pytest_configure(config: pytest.Config) -> None:
    """Programs that the tests start shall find signals as a shell's user has them, however the tests were started.

    A script's `&` and nohup(1) have SIGINT and SIGHUP ignored, and that is inherited.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if config.getoption("numprocesses", None):  # the first of several processes
        java.offer(config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """One of several processes makes for all what Spark is started with."""
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        java.make(session)


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option for where everything must be tried: CI."""
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped has failed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Makes failures of skips with `--no-skips`. What is expected to fail is run, and is none. Shows what programs have said."""
    report = yield
    if report.failed and isinstance(place := getattr(item, "funcargs", {}).get("place"), Path):
        report.sections.extend((f"the end of {log.name}", log.read_text(errors="replace")[-LOG_SHOWN:]) for log in logs_in(place))
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption("no_skips"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and nothing may be: {report.longrepr[-1] if isinstance(report.longrepr, tuple) else ''}"
    return report


def logs_in(place: Path) -> list[Path]:
    """The logs of a test's programs. A bus is not looked into: it may hang."""
    if not place.is_dir():  # at the end of the test
        return []
    below = [Path(entry) for entry in os.scandir(place) if entry.is_dir(follow_symlinks=False)]
    return sorted(log for each in (place, *below) if not device_of(each) for log in each.glob("*.log") if log.is_file())


@pytest.fixture(autouse=True)
def nobody_is_stuck(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whoever is in state D inside FUSE for half a second fails the test. `WATCH.expecting` is for known limits."""
    if request.path.parent.name == "core":  # knows nothing of processes
        yield
        return
    WATCH.start()
    WATCH.take()
    yield
    WATCH.check()


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory that every user can enter, which pytest's tmp_path is not.

    Its name is of letters that stand together in no word: others were by chance one that a bus must not say, though its path is
    in what it does say. It has no digits, which were by chance the number of a port, and another one was put in its place.
    """
    base = Path(tempfile.gettempdir()).resolve()
    while True:
        directory = base / f"futebus-{''.join(secrets.choice('jqxz') for _ in range(12))}"
        with contextlib.suppress(FileExistsError):
            directory.mkdir(0o755)
            break
    directory.chmod(0o755)  # whatever the umask is
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def mounting(place: Path, request: pytest.FixtureRequest) -> Iterator[Mounting]:
    """Mounts buses: `mounting("max_queue=8", ...)`, also in the place of one before: `mounting(at=bus.path)`.

    At the end of the test each must go down in an orderly way.
    """
    mounts: list[Mount] = []
    settled = contextlib.ExitStack()

    def mount(*options: str, at: Path | None = None, **popen: Any) -> Mount:
        if "allow_other" in options and not mounts and "protected_regular" not in request.fixturenames:
            settled.enter_context(unchanged())
        directory = at or place / f"bus{len(mounts)}"
        directory.mkdir(exist_ok=bool(at))
        if not popen.keys() - {"patience"} and not forked.is_about_starts(request.path):
            popen["command"] = None
        mounted = Mount(directory, place / f"bus{len(mounts)}.log", *options, **popen)
        mounts.append(mounted)
        return mounted

    try:
        yield mount
        for mounted in mounts:
            mounted.unmount()
    finally:
        settled.close()
        for mounted in mounts:
            mounted.discard()


@pytest.fixture
def bus(mounting: Mounting) -> Mount:
    """A bus with the default options."""
    return mounting()
