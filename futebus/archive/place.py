"""Where Spark runs, as `--master` says.

The one rule: what cannot be is said at once. Spark itself tries for a minute, in silence, and ends the process.
"""

import socket

from ..core.quantities import MOST_PORT, natural
from .storage import ArchiveError

CONNECT_SECONDS = 10.0
"""How long the master of a cluster may take to answer."""


def check_master(master: str) -> None:
    """Checks that somebody is there whom Spark can ask for executors.

    Args:
        master: as Spark takes it. Only what names hosts, `spark://HOST:PORT[,HOST:PORT...]`, can be checked from here.

    Raises:
        ArchiveError: nobody is.
    """
    scheme, separator, places = master.partition("://")
    if scheme != "spark" or not separator:
        return
    why: list[str] = []
    for place in places.split(","):
        host, colon, port = place.rpartition(":")
        if not colon or not host or not natural(port, MOST_PORT):
            raise ArchiveError(f"--master {master}: not spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, UnicodeError) as error:  # a name that cannot be one, too
            why.append(f"{place}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise ArchiveError(f"--master {master}: no Spark is there ({'; '.join(why)})")
