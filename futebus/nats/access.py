"""Who one is to a server, and whom one takes for it: options, then the environment, then a context of the tool `nats`.

The one rule: files are looked at before anything else is done, so that what is wrong with one is said at once, in one line; and
credentials and keys are read again for each connection, so that new ones need no new start.
"""

import json
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .address import Server, read_servers
from .errors import NatsError

VARIABLES = {
    "url": "NATS_URL",
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "creds": "NATS_CREDS",
    "nkey": "NATS_NKEY",
    "tls_ca": "NATS_CA",
    "tls_cert": "NATS_CERT",
    "tls_key": "NATS_KEY",
    "context": "NATS_CONTEXT",
}
"""What the environment may say, as the tool `nats` has it."""

CONTEXT = {
    "url": "url",
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "creds",
    "nkey": "nkey",
    "ca": "tls_ca",
    "cert": "tls_cert",
    "key": "tls_key",
    "tls_first": "tls_first",
}
"""What a context may say, and what it is called here."""

UNKNOWN = ("nsc", "socks_proxy", "user_jwt", "user_seed", "windows_cert_store")
"""What a context may say that changes who one is, and is not known here."""

LOCAL = "nats://127.0.0.1:4222"


@dataclass(frozen=True, kw_only=True)
class Access:
    """What is shown to servers, and asked of them. See futebus-link(1)."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds: Path | None = None
    nkey: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_first: bool = False
    """Whether TLS begins before the server has said anything."""

    def check(self) -> None:
        """Sees that all files are there and hold what they should.

        Raises:
            NatsError: one does not.
        """
        self.tls()
        self.shown_to(None)

    def tls(self) -> ssl.SSLContext | None:
        """How TLS is spoken, where the address or the server wants it; None: as usual. To find that out costs 30 ms.

        Raises:
            NatsError: a file cannot be read, or is none.
        """
        if self.tls_key and not self.tls_cert:
            raise NatsError("a TLS key is of no use without its certificate")
        if not self.tls_ca and not self.tls_cert:
            return None
        try:
            made = ssl.create_default_context(cafile=self.tls_ca)
        except OSError as error:
            raise NatsError(f"{self.tls_ca}: no certificates: {_words(error)}") from None
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.tls_cert:
            key = self.tls_key

            def no_password() -> str:
                raise NatsError(f"{key or self.tls_cert}: the key is locked by a password")

            try:
                made.load_cert_chain(self.tls_cert, key, no_password)
            except OSError as error:
                also = f" and {key}" if key else ""
                raise NatsError(f"{self.tls_cert}{also}: no certificate and key: {_words(error)}") from None
        return made

    def shown_to(self, server: Server | None) -> dict[str, Any]:
        """What is shown to a server, as nats-py takes it. What its URL says goes first.

        Raises:
            NatsError: a file cannot be read, or holds something else.
        """
        if server and server.user is not None:
            return {"user": server.user, "password": server.password} if server.password is not None else {"token": server.user}
        if self.creds:
            return {"user_credentials": _credentials(self.creds)}
        if self.nkey:
            return {"nkeys_seed_str": _seed(self.nkey)}
        if self.user is not None:
            return {"user": self.user, "password": self.password or ""}
        return {"token": self.token} if self.token is not None else {}


def _words(error: OSError) -> str:
    """What has gone wrong, without where in the library: `[SSL] PEM lib (_ssl.c:3926)`."""
    if not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    return re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", str(error))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise NatsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NatsError(f"{path}: no text") from None


def _nkeys() -> Callable[[bytearray], Any]:
    try:
        import nkeys
    except ImportError:
        raise NatsError("the module nkeys is missing, for credentials and keys: pip install 'nats-py[nkeys]'") from None
    from_seed: Callable[[bytearray], Any] = nkeys.from_seed
    return from_seed


def _credentials(path: Path) -> Any:
    text = _text(path)
    found = re.search(r"BEGIN NATS USER JWT-+\r?\n\S+\r?\n.*BEGIN USER NKEY SEED-+\r?\n(\S+)\r?\n", text, re.DOTALL)
    if not found:
        raise NatsError(f"{path}: these are no credentials of a NATS user")
    _check_seed(path, found[1])
    from nats.aio.client import RawCredentials

    return RawCredentials(text.replace("\r\n", "\n"))


def _seed(path: Path) -> str:
    words = [line for line in _text(path).split("\n") if line.strip().startswith("SU")]
    if len(words) != 1:
        raise NatsError(f"{path}: no seed of a NATS user, which begins with SU")
    _check_seed(path, words[0].strip())
    return words[0].strip()


def _check_seed(path: Path, seed: str) -> None:
    from_seed = _nkeys()
    try:
        from_seed(bytearray(seed.encode())).wipe()
    except Exception:  # it has a dozen kinds
        raise NatsError(f"{path}: the seed in it is damaged") from None


def gather(options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> tuple[tuple[Server, ...], Access]:
    """Brings together what is known of servers and access.

    Args:
        options: those of the command that were given, as the fields of `Access`, and `context`.
        environment: see `VARIABLES`.

    Returns:
        The servers for addresses that name none; the access.

    Raises:
        NatsError: what is told is of no use.
    """
    told: dict[str, Any] = {name: environment[variable] for name, variable in VARIABLES.items() if environment.get(variable)}
    told |= options
    if "context" in told:
        told = _context(told["context"], environment) | told
    try:
        servers = read_servers(str(told.get("url", LOCAL)))
    except ValueError as error:
        raise NatsError(f"{'NATS_URL' if environment.get('NATS_URL') else 'the context'}: {error}") from None
    if not servers:
        raise NatsError("NATS_URL: no server")
    files = ("creds", "nkey", "tls_ca", "tls_cert", "tls_key")
    fields: dict[str, Any] = {name: told[name] for name in Access.__dataclass_fields__ if name in told}
    fields |= {name: Path(fields[name]) for name in files if name in fields}
    return servers, Access(**fields)


def _context(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a context of the tool `nats` says."""
    if not re.fullmatch(r"[^/\s.][^/\s]*", name):
        raise NatsError(f"no name of a context: {name!r}")
    home = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    path = Path(home, "nats", "context", f"{name}.json")
    try:
        told = json.loads(_text(path))
    except json.JSONDecodeError:
        raise NatsError(f"{path}: no JSON") from None
    if not isinstance(told, dict):
        raise NatsError(f"{path}: no context of the tool nats")
    for field in UNKNOWN:
        if told.get(field):
            raise NatsError(f"{path}: {field} is not known here")
    found = {here: told[there] for there, here in CONTEXT.items() if told.get(there)}
    for field, value in found.items():
        if not isinstance(value, bool if field == "tls_first" else str):
            raise NatsError(f"{path}: no context of the tool nats")
    return found
