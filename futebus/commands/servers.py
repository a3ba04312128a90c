"""How the commands take servers of NATS: who one is to them, and how a stream is made. One way for all of them."""

from typing import TYPE_CHECKING, Any

from ..core.quantities import count, seconds, size
from .arguments import Parser, checked, path

if TYPE_CHECKING:
    from ..nats.access import Access
    from ..nats.address import Server
    from ..nats.wanted import Wanted

FILES = {
    "creds": "credentials of a NATS user: a JWT and a seed",
    "nkey": "the seed of a NATS user's key",
    "tls-ca": "whose certificates servers must have (PEM); the system's authorities otherwise",
    "tls-cert": "our certificate, for servers that want one",
    "tls-key": "its key, if it is not in the same file",
}

ACCESS = ("context", *(option.replace("-", "_") for option in FILES))
"""The options that say who one is, as they are known behind the parser."""

STREAM = ("stream_subjects", "stream_replicas", "stream_max_bytes", "stream_max_age", "take_over")
"""The options that say how a stream is made, and whose it is."""


LEAST_BYTES = 4 << 10
"""What a stream keeps at least that is made: a message must have room, and its headers may take a few hundred bytes."""

LEAST_AGE = 0.1
"""How long it keeps them at least, in seconds: servers take no less, and 0 for ever."""


def add_access(parser: Parser) -> None:
    """Adds the options that say who one is."""
    access = parser.add_argument_group("servers")
    access.add_argument("--context", metavar="NAME", help="servers and access of a context of the tool nats")
    for option, words in FILES.items():
        access.add_argument(f"--{option}", metavar="FILE", type=checked(path), help=words)


def add_stream(parser: Parser, taken_over: str) -> None:
    """Adds the options of a stream.

    Args:
        parser: where to.
        taken_over: what --take-over does.
    """
    stream = parser.add_argument_group("the stream, if it is made")
    stream.add_argument(
        "--stream-subjects", metavar="SUBJECT", type=checked(_filter), help="what it listens to, as lines.> (the subject alone)"
    )
    stream.add_argument("--stream-replicas", metavar="N", type=checked(count), help="how many servers have it (1)")
    stream.add_argument(
        "--stream-max-bytes", metavar="SIZE", type=checked(_max_bytes), help="it keeps so much of the newest lines"
    )
    stream.add_argument("--stream-max-age", metavar="AGE", type=checked(_max_age), help="it keeps lines until they are so old")
    stream.add_argument("--take-over", action="store_true", help=taken_over)


def _filter(text: str) -> str:
    from ..nats.address import read_subject

    return read_subject(text, is_filter=True)


def _max_bytes(text: str) -> int:
    if (most := size(text)) < LEAST_BYTES:
        raise ValueError(f"from {LEAST_BYTES >> 10}K on, so that a message has room, and not {text}; without it, all is kept")
    return most


def _max_age(text: str) -> float:
    if (most := seconds(text)) < LEAST_AGE:
        raise ValueError(f"from {LEAST_AGE:g}s on, and not {text}; without it, all is kept")
    return most


def check_stream(parser: Parser, given: dict[str, Any], subject: str | None) -> None:
    """Sees that a stream that is made listens to a subject. Ends the program if it would not.

    Args:
        parser: of the command.
        given: the options.
        subject: it must be listened to; None: none must.
    """
    from ..nats.address import is_within

    listens = given.get("stream_subjects")
    if listens is not None and subject is not None and not is_within(subject, [listens]):
        parser.error(f"--stream-subjects {listens} does not include {subject}")


def gathered(given: dict[str, Any]) -> "tuple[tuple[Server, ...], Access]":
    """What the options, the environment and a context say: servers for addresses without one, and access. Files are looked at.

    Raises:
        NatsError: what is told is of no use.
    """
    from ..nats.access import gather

    servers, access = gather({name: str(given[name]) for name in ACCESS if name in given})
    access.check()
    return servers, access


def wanted(given: dict[str, Any], subject: str | None) -> "Wanted":
    """The stream that the options ask for.

    Args:
        given: the options.
        subject: what it must listen to.
    """
    from ..nats.wanted import Wanted

    return Wanted(
        subject,
        given.get("stream_subjects"),
        given.get("stream_replicas"),
        given.get("stream_max_bytes"),
        given.get("stream_max_age"),
    )
