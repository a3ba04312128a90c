"""Every bound of a bus, with its default and the reason for it. The mount options of the same names set them."""

from dataclasses import dataclass, fields

# IDs are 32-bit: `{ID}` stays short, and a service would need years of a thousand opens a second to see one again.
LAST_ID = 0xFFFF_FFFF

# NAME_MAX of Linux. The kernel refuses more by itself; the core does too, for who calls it without a kernel.
MAX_NAME = 255

# `{ID:o}` and `{ID:c}` bypass flow control, so nothing else bounds what a master that does not read can be made to hold.
MAX_CONTROLS = 65_536


# Processes that write by one open file description have a write each that waits, and none of them is a client. So a user may have
# so many bytes of them for each client that the user may have: thousands of processes at a shell, no gigabytes.
SHARED_WRITE_BYTES = 65_536

SIZES = ("max_message", "max_queue_bytes")
"""Which of the bounds of a bus are bytes. The others are numbers of things."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one bus."""

    max_message: int = 262_144
    """Bytes of one message, its newline included: a client that writes no newline holds no more than this."""

    max_queue: int = 65_536
    """Messages that wait for one client: a second of the fastest writer that reads line by line, ten of a usual one."""

    max_queue_bytes: int = 4_194_304
    """Bytes that wait for one client, whichever bound is met first: a client that stops reading costs no more."""

    max_clients: int = 16_384
    """Open file descriptions on the bus: a fifth of a gigabyte of them, and far more than a host's services need."""

    max_clients_per_user: int = 4_096
    """Open file descriptions of one user other than root, so that none can take all of `max_clients`."""

    max_channels: int = 4_096
    """Names on the bus: `ls` stays readable, and nobody fills the directory."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            low = 2 if field.name == "max_message" else 1
            if not low <= value <= LAST_ID:
                raise ValueError(f"{field.name} must be from {low} to {LAST_ID}, not {value}")
