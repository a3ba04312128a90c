"""What nobody else can tell of a spool: of it the names of messages are made, so that nobody can take them beforehand.

The one rule: it is in a file that its owner alone can read, whoever may read the spool. What others could read is none any more.
"""

import contextlib
import os
import re
import secrets

from ..spool.files import FULL, OWN_FILE_MODE, Directory

SECRET = "secret"
"""The name of the file."""

_SECRET = re.compile(r"[0-9a-f]{32}")


def is_own(file: int) -> bool:
    """Whether nobody but its owner can read an open file."""
    return not os.fstat(file).st_mode & 0o077


def kept(directory: Directory, known: str) -> str:
    """The secret of a spool, which is made if it has none.

    Args:
        directory: of the spool. One process at a time does this.
        known: what is taken if there is no file: spools of before have it elsewhere. "" if there is nothing.

    Raises:
        OSError: it cannot be read, or kept. If that is for lack of room, this one is good until the process ends.
        NotASpool: the file is no place for it.
    """
    with contextlib.suppress(FileNotFoundError):
        file = directory.open(SECRET)
        try:
            found = os.pread(file, 64, 0).decode("ascii", "replace")
            if _SECRET.fullmatch(found) and is_own(file):
                return found
        finally:
            os.close(file)
    made = known if _SECRET.fullmatch(known) else secrets.token_hex(16)
    try:
        directory.replace(SECRET, made.encode(), OWN_FILE_MODE)
    except OSError as error:
        if error.errno not in FULL:
            raise
    return made
