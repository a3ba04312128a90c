"""What peers must show to be let in, where they speak TLS.

The one rule: without a certificate of a client authority, whoever reaches the port is let in; with one, nobody else is.
"""

import re
import ssl
from pathlib import Path

from ..life import GatewayError


def context(certificate: Path, key: Path | None, authority: Path | None) -> ssl.SSLContext:
    """How TLS is spoken.

    Args:
        certificate: the server's, and the chain above it; PEM.
        key: of the certificate; None: it is in the same file.
        authority: who must have signed the certificates of peers; None: they need none.

    Raises:
        GatewayError: a file cannot be read, or is none.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION  # which costs the server more than who asks for it

    def no_password() -> str:
        raise GatewayError(f"{key or certificate}: the key is locked by a password")

    try:
        made.load_cert_chain(certificate, key, no_password)
    except (OSError, ssl.SSLError) as error:
        raise GatewayError(f"{certificate}{f' and {key}' if key else ''}: no certificate and key: {_words(error)}") from None
    if authority:
        try:
            made.load_verify_locations(authority)
        except (OSError, ssl.SSLError) as error:
            raise GatewayError(f"{authority}: no certificate: {_words(error)}") from None
        made.verify_mode = ssl.CERT_REQUIRED
    return made


def _words(error: OSError) -> str:
    """What has gone wrong, without where in the library: `[SSL] PEM lib (_ssl.c:3926)`."""
    if not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    return re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", str(error))
