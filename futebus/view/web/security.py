"""Who may see what: every request passes here first.

The one rule: nothing is answered because of where a browser has been before. There are no cookies; a request must name this
server as it is really called, must not come from another site's page, only asks, and shows the token where one is wanted.
"""

import hmac
import logging
from collections.abc import Iterable
from dataclasses import dataclass

import trio
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..complaints import complain
from .pledges import SHOWN

log = logging.getLogger(__name__)

LOCALHOST = "localhost"

OWN_NAMES = (LOCALHOST, "127.0.0.1", "[::1]")
"""What this machine is called by its own browsers."""

ALWAYS_OPEN = frozenset({"/", "/app.js", "/curves.js", "/stream.js", "/tables.js", "/style.css", "/icon.svg", "/same"})
"""The page itself, in which there is nothing of any bus, and how it knows this server again. It is what asks for the token."""

WITH_NUMBERS = frozenset({"/events", "/metrics", "/stat.json"})
"""What shows what goes on, and no message: without the token, unless everything wants it."""

WITH_MESSAGES = frozenset({"/tail"})
"""What shows messages: never without the token."""

LASTING = frozenset({"/events", "/tail"})
"""What has no end: who has closed his half of the connection is taken to have gone."""

GONE = "gone"
"""Where in the state of a connection stands the event that is set when nothing more comes from the browser."""

PATHS = ALWAYS_OPEN | WITH_NUMBERS | WITH_MESSAGES
"""All that there are, to the letter. No other one is let in, whatever might be found behind it."""

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
"""Nothing from elsewhere, nothing inline, and no text that a script could make into markup."""

HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-store"),
]
"""What every answer says."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of a request."""

    hosts: frozenset[str]
    """What is answered to, in lower case: as the header has it."""
    names: frozenset[str]
    """Those on whatever port."""
    token: str
    is_private: bool
    """Whether the token is asked for everything, rather than for messages only."""

    def knows(self, host: str, at: tuple[str, int] | None = None) -> bool:
        """Whether the header `Host` names this server.

        Args:
            host: what it says.
            at: the address and port that the browser has reached. They name nobody else.
        """
        host = host.lower()
        if at and host == (f"[{at[0]}]:{at[1]}" if ":" in at[0] else f"{at[0]}:{at[1]}"):
            return True
        name, _, port = host.rpartition(":")
        return host in self.hosts | self.names or (name in self.names and port.isdecimal())

    def wants_token(self, path: str) -> bool:
        """Whether the token is asked for."""
        return path in WITH_MESSAGES or (self.is_private and path not in ALWAYS_OPEN)

    def has_token(self, authorization: str) -> bool:
        """Whether the header `Authorization` shows it. How long that takes does not tell how much of it is right."""
        scheme, _, shown = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), self.token.encode())


def rules_for(
    port: int, addresses: Iterable[str], names: Iterable[str], token: str, *, is_private: bool, has_localhost: bool = True
) -> Rules:
    """What is asked of a request to a server.

    Args:
        port: where it listens.
        addresses: on which addresses, as they stand in URLs. An address names nobody else, so it is safe.
        names: what else it was told: a name with a port is that one, a name alone is so on every port.
        token: for messages.
        is_private: whether it is for everything.
        has_localhost: whether the name `localhost` leads here and to nobody else.
    """
    own = {*OWN_NAMES, *addresses} - (set() if has_localhost else {LOCALHOST})
    told = {name.lower() for name in names}
    bare = frozenset(name for name in told if ":" not in name or name.endswith("]"))
    exact = {f"{name}:{port}" for name in own} | (own if port == 80 else set()) | (told - bare)
    return Rules(frozenset(exact), bare, token, is_private)


def is_own_name(name: str) -> bool:
    """Whether a name, with a port or without, is what this machine's browsers have for it, and no others."""
    host = name.lower().removesuffix(f":{name.rpartition(':')[2]}") if ":" in name and not name.endswith("]") else name.lower()
    return host in OWN_NAMES or host.endswith(".localhost")


class Gate:
    """Lets a request in, or says in a line why not.

    Args:
        app: what answers those that are let in. It gets no message of the request: there is no body, and it is cancelled when
            the browser has gone.
        rules: what is asked.
    """

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        is_begun = is_answered = False

        async def guarded(message: Message) -> None:
            nonlocal is_begun, is_answered
            is_begun = True
            # With the last piece the server says that the browser has gone: of the answer, that is the end and no hindrance.
            is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            await send(message)

        async def until_gone() -> None:
            # What comes is taken and thrown away: nobody who sends more than there is to say keeps anything waiting.
            while (await receive())["type"] != "http.disconnect":
                pass
            if not is_answered:
                nursery.cancel_scope.cancel()

        async def until_closed(gone: trio.Event) -> None:
            await gone.wait()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_gone)
            refusal = self._refusal(scope)
            scope["state"][SHOWN] = self._rules.has_token(Headers(scope=scope).get("authorization", ""))
            if refusal is None and scope["path"] in LASTING:
                nursery.start_soon(until_closed, scope["state"][GONE])
            try:
                await (refusal or self._app)(scope, _nothing, guarded)
            except Exception as error:
                complain(log, "internal error while a request was answered", error)
                if not is_begun:
                    await _no(500, "an internal error; the log has it")(scope, _nothing, guarded)
            nursery.cancel_scope.cancel()

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers, path, rules = Headers(scope=scope), scope["path"], self._rules
        if scope["http_version"] not in ("1.0", "1.1"):
            return _no(505, "HTTP/1.1, please")
        host = headers.get("host", "")
        if not rules.knows(host, scope.get("server")):
            return _no(421, "this server does not answer to that name; futebus-web --host NAME has it do so")
        if scope["method"] not in ("GET", "HEAD"):
            return _no(405, "this server only shows: GET and HEAD", {"allow": "GET, HEAD"})
        if headers.get("origin", f"http://{host}") not in (f"http://{host}", f"https://{host}") or not _is_from_here(
            headers, path
        ):
            return _no(403, "not for the pages of other sites")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return _no(413, "there is nothing to be sent here", {"connection": "close"})
        if rules.wants_token(path) and not rules.has_token(headers.get("authorization", "")):
            return _no(401, "the token, please: it is behind #token= in the address that futebus-web has printed", _CHALLENGE)
        if path not in PATHS:
            return _no(404, "there is nothing here")
        return None


_CHALLENGE = {"www-authenticate": 'Bearer realm="futebus"'}


def _is_from_here(headers: Headers, path: str) -> bool:
    """Whether no other site's page has had the browser ask. What is no browser says nothing of it."""
    site = headers.get("sec-fetch-site", "none")
    is_followed_link = path == "/" and (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return site in ("none", "same-origin") or is_followed_link


def _no(status: int, words: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    return PlainTextResponse(words + "\n", status, headers)


async def _nothing() -> Message:
    await trio.sleep_forever()
    raise AssertionError("it sleeps for ever")
