"""A stream as it is wanted."""

import pytest

from futebus.nats.errors import NoStream
from futebus.nats.stream import Stream
from futebus.nats.wanted import Unfit, Wanted

from ..helpers.nats import Serving
from ..helpers.published import ask


def test_a_stream_that_would_not_listen_is_not_made(serving: Serving) -> None:
    async def work(stream: Stream) -> None:
        with pytest.raises(Unfit, match=r"/LINES is not made: it would listen to lines\.\*, and not to lines$"):
            await Wanted("lines", listens="lines.*").have(stream)
        with pytest.raises(NoStream):
            await stream.state()
        await Wanted("lines.a", listens="lines.*").have(stream)
        assert (await stream.state()).subjects == ("lines.*",)
        await Wanted("lines.b", listens="other").have(stream)  # it is there, so it does not matter how it would be made

    ask(serving(jetstream=True).url, work)
