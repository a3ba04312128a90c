"""Where a user's own files are."""

import errno
import os
import pwd
from pathlib import Path


def home() -> Path:
    """The user's own directory: what HOME names, or else what the system knows of the user.

    Raises:
        OSError: neither does, as where a program runs as a user whom nobody has named.
    """
    if given := os.environ.get("HOME"):
        return Path(given)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise OSError(errno.ENOENT, f"HOME is not set, and the system knows no user {os.getuid()}") from None
