"""What can go wrong with servers and streams, in one sentence each.

The one rule: no sentence has a password in it, whatever the URL had that it is about.
"""

import re


class NatsError(Exception):
    """Why one cannot go on, in one sentence."""


class Away(NatsError):
    """No server answers. It may pass by itself."""


class Denied(NatsError):
    """A server does not let us do what is wanted, or we do not trust it. It does not pass by itself."""


class NoStream(NatsError):
    """A stream is not there, and nobody may be asked to make it."""


class MadeAnew(NatsError):
    """A stream is another than the one that was meant, under the same name."""


def masked(url: str) -> str:
    """A URL, or what was meant as one, with `***` for what may be a name and a password: all before the last `@`."""
    return re.sub(r"^([A-Za-z]\w*://)?.*@", r"\1***@", url, flags=re.DOTALL)
