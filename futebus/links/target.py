"""The channel that a delivery writes to, which may go, and may come again.

The one rule: a bus or a master that is not there is waited for if somebody wants that, and is an error otherwise.
"""

import math
import time
from pathlib import Path

from ..client import ClientError
from ..client.channel import Endpoint, Way
from ..client.errors import NoBus
from ..client.messages import texts
from ..core.kinds import has_master
from ..host.voice import Voice


class Target:
    """A channel that is written to. It is not open at first.

    Args:
        path: of a U or B channel.
        voice: says what happens.
        mode: permissions of a channel that is created; None: what the umask leaves of 666.
        waits: whether a bus or a master that is not there or has gone is waited for.
    """

    def __init__(self, path: Path, voice: Voice, *, mode: int | None, waits: bool) -> None:
        self.path, self._voice, self._waits = path, voice, waits
        self.channel = Endpoint(Way(path, reads=False, creates=True, mode=mode, say=voice.say), texts(bytes), is_blocking=False)

    def open(self) -> None:
        """Opens it, also if it was open before.

        Raises:
            ClientError: it cannot be had.
        """
        for pause in self.channel.attempts(math.inf if self._waits else 0.0):
            time.sleep(pause)

    def look(self) -> None:
        """Looks whether it is there and has its name.

        Raises:
            ClientError: it has gone and is not waited for.
        """
        try:
            is_removed = self.channel.inquire().is_removed
        except NoBus as error:
            self.gone(error)
        else:
            if is_removed and not has_master(self.path.name):
                self._voice.say(f"{self.path}: its name was removed; it is opened anew")
                self.open()

    def gone(self, error: ClientError) -> None:
        """Is told that it has gone. When this returns it is there again.

        Raises:
            ClientError: it is not waited for.
        """
        if not self._waits:
            raise error
        self._voice.warn(f"{error}; waiting")
        self.open()
        self._voice.say(f"{self.path} is open again")
