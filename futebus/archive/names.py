"""Which channels have names that can be those of directories: `channel=NAME`, as Spark writes it."""

import re

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)

from ..spark.source import channels

_MAX_NAME = 255
ESCAPED = "".join(map(chr, range(1, 32))) + "\"#%'*/:=?\\\x7f{[]^"
"""What Spark writes as `%XX` in the name of a directory."""


def unfit(channel: str) -> str | None:
    """Why a channel of this name cannot be archived; None if it can."""
    if why := channels.unfit(channel):
        return why
    length = len(f"channel={channel}".encode()) + 2 * sum(character in ESCAPED for character in channel)
    return f"its name is too long for a directory ({length} bytes)" if length > _MAX_NAME else None


def fitting() -> Column:
    """Whether the column `channel` has a name that can be archived, as `unfit` tells it."""
    escaped = F.regexp_replace("channel", f"[^{re.escape(ESCAPED)}]", "")
    return F.octet_length("channel") + 2 * F.length(escaped) <= _MAX_NAME - len("channel=")
