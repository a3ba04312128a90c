"""Who may come in before he has shaken hands: how many strangers, and for how long.

The one rule: who has been let in has a place that no stranger can take from him.
"""

import contextlib
from collections.abc import Iterator

import trio

from ...host.origins import Origin

HANDSHAKES = 256
"""Connections that have not shaken hands, beside those that have. One that means it takes some milliseconds."""

HANDSHAKES_PER_ADDRESS = 64
"""Of one address that is not this machine's."""

HANDSHAKE_SECONDS = 10.0
"""How long a peer may take to begin with TLS."""


class Handshakes:
    """Those who have connected and not shaken hands. The oldest gives way to one who comes: who means it is done by then.

    Args:
        most: how many there may be. If there are more, one of the address goes that has the most of them.
        per_address: how many of one address that is not this machine's.
    """

    def __init__(self, most: int = HANDSHAKES, per_address: int = HANDSHAKES_PER_ADDRESS) -> None:
        self._most = most
        self._per_address = per_address
        self._scopes: dict[Origin, dict[trio.CancelScope, None]] = {}
        self._all = 0

    @contextlib.contextmanager
    def place(self, who: Origin) -> Iterator[trio.CancelScope]:
        """Somebody shakes hands, for as long as this lasts. It is cancelled when that takes too long, or is in the way."""
        if not who.is_here and len(self._scopes.get(who, ())) >= self._per_address:
            self._dismiss(who)
        elif self._all >= self._most:
            self._dismiss(max(self._scopes, key=lambda each: len(self._scopes[each])))
        scope = trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_SECONDS)
        self._scopes.setdefault(who, {})[scope] = None
        self._all += 1
        try:
            with scope:
                yield scope
        finally:
            self._forget(who, scope)

    def _dismiss(self, who: Origin) -> None:
        oldest = next(iter(self._scopes[who]))
        oldest.cancel()
        self._forget(who, oldest)

    def _forget(self, who: Origin, scope: trio.CancelScope) -> None:
        scopes = self._scopes.get(who, {})
        if scope in scopes:
            del scopes[scope]
            self._all -= 1
            if not scopes:
                del self._scopes[who]
