"""What somebody has asked of a stream of NATS: `load("nats://SERVER/STREAM")` and its options, checked and given types.

The one rule: who one is to the servers is found out once, on the driver, and never shown. Tasks get it with their work.
"""

import difflib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import AtomicType, LongType, StringType, StructField, StructType

from ..nats import address
from ..nats.access import Access, gather
from ..nats.address import Server, StreamAddress
from ..nats.errors import NatsError
from .compat import HAS_LIMITS
from .options import COLUMNS, PARTITION_BYTES, SCHEMA, OptionError, poll_seconds, read_count, read_flag, read_mode

STREAM_COLUMNS: Mapping[str, tuple[type[AtomicType], ...]] = {
    **COLUMNS,
    "host": (StringType,),
    "subject": (StringType,),
    "sequence": (LongType,),
}
"""What there is to read of a stream: what a spool has, and more."""

_NULLABLE = ("channel", "address", "host")
"""What an outsider's message does not tell."""

STREAM_SCHEMA = StructType(
    [StructField(one.name, one.dataType, one.name in _NULLABLE) for one in SCHEMA.fields]
    + [
        StructField("host", StringType(), True),
        StructField("subject", StringType(), False),
        StructField("sequence", LongType(), False),
    ]
)

PATIENCE_MS = 120_000
"""How long servers may be away: a machine is started again in less."""

ACCESS = {
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "creds",
    "nkey": "nkey",
    "tlsCa": "tls_ca",
    "tlsCert": "tls_cert",
    "tlsKey": "tls_key",
    "tlsFirst": "tls_first",
    "context": "context",
}
"""The options that say who one is, and what they are in `nats.access`."""

NAMES = (
    *"path startingOffsets maxRowsPerTrigger maxBytesPerTrigger failOnDataLoss partitionBytes pollTimeoutMs mode".split(),
    *("timeoutMs", "streamCreated"),
    *ACCESS,
)
TABLE_NAMES = ("path", "partitionBytes", "timeoutMs", "mode", *ACCESS)


@dataclass(frozen=True, slots=True)
class Place:
    """A stream, and who one is to those who have it: all that a task needs to get there."""

    servers: tuple[Server, ...] = field(repr=False)
    access: Access = field(repr=False)
    stream: str
    subject: str | None
    shown: str
    patience: float
    """Seconds for which servers may be away."""


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """The options of a streaming read of a stream of NATS, or of a batch read; see docs/spark.md."""

    place: Place
    starts_at: str
    max_rows: int | None
    max_bytes: int | None
    fails_on_loss: bool
    partition_bytes: int
    poll_seconds: float
    mode: str
    created: str | None
    """When the stream must have been made."""


def read_place(given: Mapping[str, str], *, has_subject: bool | None = None) -> Place:
    """Finds out where a stream is, and who one is there.

    Args:
        given: options, with names in small letters.
        has_subject: whether the path must name a subject; None: it may.

    Raises:
        OptionError: they cannot be meant, or what is needed is not installed.
    """
    if importlib.util.find_spec("nats") is None:
        raise OptionError("the module nats is missing, for streams: pip install 'nats-py[nkeys]', or scripts/install hosts")
    told: dict[str, object] = {inner: given[name.lower()] for name, inner in ACCESS.items() if name.lower() in given}
    if "tls_first" in told:
        told["tls_first"] = read_flag(given, "tlsFirst", False)
    try:
        found: StreamAddress = address.read_stream(given["path"], has_subject=has_subject)
        servers, access = gather(told, os.environ)
        access.check()
    except (ValueError, NatsError) as error:
        raise OptionError(str(error)) from None
    servers = found.servers or servers
    found = found._replace(servers=servers)
    patience = (read_count(given, "timeoutMs", PATIENCE_MS, least=0) or 0) / 1000
    return Place(servers, access, found.stream, found.subject, found.shown, patience)


def check_names(given: Mapping[str, str], names: tuple[str, ...], what: str) -> None:
    """Sees that there are such options.

    Raises:
        OptionError: there is one that is not.
    """
    known = {name.lower(): name for name in names}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            raise OptionError(f"there is no option '{name}' for {what}" + (f"; is {known[near[0]]} meant?" if near else ""))


def parse_remote(options: Mapping[str, str], *, is_table: bool = False) -> RemoteOptions:
    """Checks options.

    Args:
        options: of a read.
        is_table: whether it is a batch read.

    Raises:
        OptionError: they cannot be meant.
    """
    given = {name.lower(): value for name, value in options.items()}
    check_names(given, TABLE_NAMES if is_table else NAMES, "a batch read of a stream" if is_table else "a stream of NATS")
    starts_at = given.get("startingoffsets", "latest").lower()
    if starts_at not in ("earliest", "latest"):
        raise OptionError(f"startingOffsets is earliest or latest, not '{given['startingoffsets']}'")
    for name in ("maxRowsPerTrigger", "maxBytesPerTrigger"):
        if name.lower() in given and not HAS_LIMITS:
            raise OptionError(f"{name} needs Spark 4.2 or newer")
    return RemoteOptions(
        place=read_place(given),
        starts_at=starts_at,
        max_rows=read_count(given, "maxRowsPerTrigger", None),
        max_bytes=read_count(given, "maxBytesPerTrigger", None),
        fails_on_loss=read_flag(given, "failOnDataLoss", True),
        partition_bytes=read_count(given, "partitionBytes", PARTITION_BYTES) or 1,
        poll_seconds=poll_seconds(given),
        mode=read_mode(given),
        created=given.get("streamcreated"),
    )
