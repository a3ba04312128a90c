"""What channels have counted, all together: it goes on counting when a channel is no more."""

from typing import NamedTuple, Protocol


class Counted(Protocol):
    """Whatever counts as channels do: see `Totals`."""

    @property
    def messages_in(self) -> int: ...  # noqa: D102
    @property
    def bytes_in(self) -> int: ...  # noqa: D102
    @property
    def copies(self) -> int: ...  # noqa: D102
    @property
    def messages_out(self) -> int: ...  # noqa: D102
    @property
    def bytes_out(self) -> int: ...  # noqa: D102
    @property
    def dropped(self) -> int: ...  # noqa: D102
    @property
    def lost(self) -> int: ...  # noqa: D102


class Totals(NamedTuple):
    """The counts of several channels: of whole messages, all but `…_in` summed over the receivers."""

    channels: int = 0
    """How many they were."""
    messages_in: int = 0
    bytes_in: int = 0
    copies: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    dropped: int = 0
    lost: int = 0

    def plus(self, channel: Counted) -> "Totals":
        """The same with one more channel."""
        return Totals(
            self.channels + 1,
            self.messages_in + channel.messages_in,
            self.bytes_in + channel.bytes_in,
            self.copies + channel.copies,
            self.messages_out + channel.messages_out,
            self.bytes_out + channel.bytes_out,
            self.dropped + channel.dropped,
            self.lost + channel.lost,
        )
