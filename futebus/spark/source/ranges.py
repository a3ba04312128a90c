"""What Spark hands to its tasks of a stream: messages from one number to another, and how a task reads them, on any host.

The one rule: what is missing is told. Of all subjects, a task sees it by the numbers. Of one subject nobody can; then nothing is
missing if the stream still had what comes before a message when that was sent.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ...core.text import are, removed
from ...nats.errors import MadeAnew, NatsError
from ...nats.fetching import ASKED_BYTES, Fetched
from ...nats.reader import Reader
from ...nats.state import State
from ..options import LinesRemoved, as_ours
from ..remote import Place, RemoteOptions
from ..telling import say
from .arrow import arrow_schema
from .messages import rows
from .partitions import FILLER_BYTES, LEAST_BYTES, PROCESSORS, SMALL_BYTES

GO_ON = "; with failOnDataLoss=false the query goes on"


class MessagesPartition(InputPartition):
    """Messages that one task reads.

    Args:
        place: whose.
        first: the number of the first.
        end: the number behind the last.
        mode: see `rows`.
        created: when the stream was made.
        size: about how many bytes they are.
        is_table: whether it is no loss if some between are not there.
        fails_on_loss: whether that some are not there any more is an error.
        last: number and time of the last message of the batch, as far as that is known: see `Reader.time_of`.
    """

    def __init__(
        self,
        place: Place,
        first: int,
        end: int,
        mode: str,
        *,
        created: str,
        size: float,
        is_table: bool = False,
        fails_on_loss: bool = True,
        last: tuple[int, str] | None = None,
    ) -> None:
        super().__init__(None)
        self.last = last
        self.place, self.first, self.end, self.mode, self.created = place, first, end, mode, created
        self.is_table, self.fails_on_loss = is_table, fails_on_loss
        self.filler = bytes(FILLER_BYTES if size < SMALL_BYTES else 0)

    def read(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        """What a task does.

        Raises:
            LinesRemoved: messages have been removed meanwhile.
            ServersAway: no server has answered for too long.
            QueryError: something else is wrong with the stream.
        """
        place = self.place
        reader = Reader(
            place.servers, place.access, place.stream, "a task of futebus on Spark", place.patience, created=self.created
        )
        try:
            yield from rows(self._checked(reader), arrow_schema(schema), self.mode)
        except NatsError as error:
            raise as_ours(error) from None
        finally:
            reader.close()

    def _checked(self, reader: Reader) -> Iterator[Fetched]:
        """The messages. That some are missing is told."""
        is_seen = self.place.subject is None and not self.is_table  # whether a message is missing
        at = begin = self.first
        size = 0
        if not is_seen:
            state = reader.state()
            if state.created != self.created:
                self._lose(f"{self.place.shown} has been made anew, at {state.created}", self.first, self.end)
                return
            self._check_begin(state, begin)
            at = begin = max(begin, state.first)
        try:
            for message in reader.messages(self.first, self.end, self.place.subject):
                if is_seen and message.sequence > at:
                    self._lose_removed(at, message.sequence)
                at = message.sequence + 1
                size += len(message.data)
                yield message
                if size >= ASKED_BYTES and not is_seen:
                    self._check_begin(reader.state(), begin)
                    begin, size = at, 0
        except MadeAnew as error:
            self._lose(str(error), at, self.end)
            return
        # A server may have lost its last messages since they were counted, and have given their numbers to others.
        if self.last is not None and reader.time_of(self.last[0]) not in (self.last[1], None):
            self._lose(f"{self.place.shown} has lost its last messages", at, at)
        if not is_seen:
            self._check_begin(reader.state(), begin)
        elif at < self.end:
            self._lose_removed(at, self.end)

    def _check_begin(self, state: State, begin: int) -> None:
        """Sees that what came before some messages is still there."""
        stop = min(state.first, self.end)
        if begin < stop:
            self._lose_removed(begin, stop)

    def _lose_removed(self, begin: int, end: int) -> None:
        self._lose(removed(begin, end, self.place.shown, "message"), begin, end)

    def _lose(self, words: str, begin: int, end: int) -> None:
        if self.fails_on_loss:
            raise LinesRemoved(f"{words} while being read{'' if self.is_table else GO_ON}")
        left_out = f"; {end - begin} {are(end - begin)} left out" if begin < end else ""
        say(f"{words}{left_out}")


def cut_messages(
    options: RemoteOptions,
    state: State,
    begin: int,
    end: int,
    *,
    is_table: bool = False,
    last: tuple[int, str] | None = None,
) -> Iterator[MessagesPartition]:
    """The messages from `begin` up to `end` in parts for tasks, each of about as many bytes as the options say."""
    each = state.size / max(state.last + 1 - state.first, 1)
    size = each * (end - begin)
    most = options.partition_bytes
    if size / most < PROCESSORS:
        most = min(max(int(size / PROCESSORS), LEAST_BYTES), most)
    count = max(-(-int(size) // most), 1)
    if count > PROCESSORS:  # they are as large as each other: none has the last one for itself while the others rest
        count += -count % PROCESSORS
    count = min(count, max(end - begin, 1))
    for number in range(count if end > begin else 0):
        first, stop = (begin + (end - begin) * place // count for place in (number, number + 1))
        yield MessagesPartition(
            options.place,
            first,
            stop,
            options.mode,
            created=state.created,
            size=size / count,
            is_table=is_table,
            fails_on_loss=options.fails_on_loss,
            last=last,
        )
