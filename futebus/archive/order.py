"""What an archive is asked for, the Spark that does it, and what can go wrong.

The one rule: nothing here does anything but start Spark.
"""

import locale
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ..core.text import reason
from ..nats.errors import NatsError
from ..recorder.channel import ChannelError
from ..spark import interpreter
from ..spark.options import QueryError
from ..spark.remote import Place
from ..spool import SpoolError
from .archive import SETTINGS
from .storage import ArchiveError

STOP_SECONDS = 3.0
"""How long a running batch may take to its end when it is time to stop. Then it is given up, and comes again."""

ANY = "(?s).*"
"""The pattern that all names match."""

FAILURES = (ArchiveError, QueryError, NatsError, SpoolError, ChannelError, PySparkException, Py4JError, OSError)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be archived, where and how."""

    channels: tuple[Path, ...]
    """Which ones, in the directory of the bus."""
    bus: Path | None
    """With `pattern`: the bus whose channels it matches. None if only spools are looked for."""
    pattern: str | None
    root: str
    """The directory of the archive: an absolute path, or a URI."""
    spools: Path
    """The directory of the spools."""
    is_external: bool
    """Whether others fill the spools."""
    is_slave: bool
    """Whether U and S channels have another master."""
    every: float
    """Seconds from batch to batch."""
    batch_bytes: int
    is_once: bool
    is_binary: bool
    fails_on_loss: bool
    most_files: int
    file_bytes: int
    stats: Path | None
    window: float
    """Seconds."""
    errors: str
    master: str
    conf: tuple[tuple[str, str], ...]
    stream: Place | None = None
    """The stream of NATS that is archived, rather than channels."""
    stream_options: tuple[tuple[str, str], ...] = ()
    """Where it is and who one is there, in the words of the format's options."""

    @property
    def is_local(self) -> bool:
        """Whether the archive is a directory of this host."""
        return self.root.startswith("/")

    @property
    def engine(self) -> str:
        """The Spark that computes: `--conf` has the last word."""
        return dict(self.conf).get("spark.master", self.master)

    def spool_of(self, name: str) -> Path:
        """The directory of a channel's spool."""
        return self.spools / name


LOG = """\
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{{1}}: %m%n
"""
"""What Spark logs, in the words of its logger. What ends a query is told by other ways, and in one line."""


def session(order: Order, log: Path) -> SparkSession:
    """Starts Spark.

    Args:
        order: how.
        log: the configuration of its log.
    """
    given = dict(order.conf)
    settings = {"spark.app.name": "futebus-archive", "spark.python.unix.domain.socket.enabled": "true"}
    if order.engine.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        interpreter.quicken()
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        }
    settings |= SETTINGS | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stopTimeout": f"{STOP_SECONDS:g}s",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if locale.nl_langinfo(locale.CODESET) != "UTF-8":
        os.environ["LC_ALL"] = "C.UTF-8"  # otherwise Java has no files whose names are not ASCII
    java = "spark.driver.extraJavaOptions"
    given[java] = f"-Dlog4j2.configurationFile={log.as_uri()} {given.get(java, '')}"
    configuration = SparkConf().setMaster(order.master).setAll([*(settings | given).items()])
    if SparkContext._gateway is None:
        # In a process group of its own: what a terminal that closes, or timeout(1), sends to the whole of this one would end
        # Java under the batch that is to come to its end. Without this process it ends by itself.
        SparkContext._ensure_initialized(gateway=launch_gateway(configuration, {"process_group": 0}))  # type: ignore[no-untyped-call]
    # In the main thread, Spark would put a handler of its own in the place of the one for SIGINT, also if that is ignored.
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(SparkSession.builder.config(conf=configuration).getOrCreate).result()


_OURS = re.compile(
    r"(?:(?:Query|Option|Spool|Archive|Storage|Sink)Error"
    r"|ServersAway|FilesAway|StreamGone|LinesRemoved|LinesGone|LinesDamaged|ForeignSpool|NotASpool|InvalidLine): (.+)"
)


_GO_ON = ("with failOnDataLoss=false the query goes on", "without --strict, futebus-archive goes on")
"""What can be done when lines are lost: in the words of the format, and in those of the command."""

_CLASS = r"(?:[\w$]+\.)*[\w$]+: "
"""The name of an exception of Java's or Python's, in front of its words."""
_IN_PYTHON = "Traceback (most recent call last):"
_CODES = re.compile(r"^\[[A-Z0-9_.]+\] |\.? *(?:SQLSTATE: \w+)?$")
"""What Spark writes before and behind what an error is in words."""
_ROOTS = [re.compile(rf"^{before}(?:{_CLASS})+(?:\[Errno \d+\] )?(.+)", re.MULTILINE) for before in ("Caused by: ", ": ", "")]
"""Where a failure in our part of a query has its reason: what Java names last as a cause, what it threw, or what Python did."""


def sentence(error: BaseException) -> str:
    """What has gone wrong, in one line."""
    words = str(error)
    if isinstance(error, PySparkException) and (ours := _OURS.findall(words)):
        return str(ours[-1]).strip().replace(*_GO_ON)
    if isinstance(error, PySparkException) and _IN_PYTHON in words:
        thrown = words.partition(_IN_PYTHON)[2].partition("\n=== ")[0]
        if reasons := next(filter(None, (root.findall(thrown) for root in _ROOTS)), None):
            return str(reasons[-1]).strip()
    if isinstance(error, Py4JError):
        # Behind the first line, which says what was called, stands the exception of Java with the name of its class.
        causes = _ROOTS[0].findall(words)
        words = "\n".join(re.sub(r"^: (?:[\w$]+\.)+[\w$]+: (?=.)", "", line) for line in words.splitlines()[1:]) or words
        first = words.partition("\n")[0]
        if causes and causes[-1].strip() not in first:
            words = f"{_CODES.sub('', first)}: {causes[-1].strip()}"
    if isinstance(error, OSError) and error.strerror:
        words = reason(error)
    return next((line for line in words.splitlines() if line.strip()), type(error).__name__)
