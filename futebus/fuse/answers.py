"""What a handler of pyfuse3 answers when it cannot do what was asked for, and what the log says of it."""

import errno
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pyfuse3 import FUSEError, RequestContext

from futebus.core.errors import BusError
from futebus.core.text import escape
from futebus.host.logs import tell, tell_error

from .callers import owner
from .nodes import AlreadyTaken, Nodes

log = logging.getLogger(__name__)


class Describes(Protocol):
    """Whose handlers they are."""

    def described(self, call: str, arguments: Sequence[object]) -> str:
        """A call as the log names it."""


P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D", bound=Describes)


def answered(handler: Callable[Concatenate[D, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[D, P], Coroutine[Any, Any, T]]:
    """Makes errors answers: a `BusError` its errno, `AlreadyTaken` `ESTALE`, others `EIO` with the traceback in the log."""

    @functools.wraps(handler)
    async def wrapper(self: D, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await handler(self, *args, **kwargs)
        except FUSEError:
            raise
        except AlreadyTaken:
            raise FUSEError(errno.ESTALE) from None
        except BusError as error:
            reason = str(error)
            tell(log, logging.DEBUG, lambda: f"{self.described(handler.__name__, args)}: refused: {reason}")
            raise FUSEError(error.errno) from None
        except Exception:
            tell_error(log, lambda: f"internal error in {self.described(handler.__name__, args)}")
            raise FUSEError(errno.EIO) from None

    return wrapper


def described(call: str, arguments: Sequence[object], nodes: Nodes) -> str:
    """A call as the log names it: of which name or channel, by whom. Nothing in it can move a terminal's cursor."""
    what = ""
    for argument in arguments:
        if isinstance(argument, bytes):
            what = escape(argument) + ": "
            break
    else:
        number = arguments[0] if arguments else None
        if isinstance(number, int) and (file := nodes.file_of(number)):
            what = escape(file.name) + ": "
    for argument in arguments:
        if isinstance(argument, RequestContext):
            who = owner(argument)
            return f"{what}{call} by process {who.pid} of user {who.uid}"
    return f"{what}{call}"
