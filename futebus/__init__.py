"""futebus: a text message bus that is a directory. Every file is a channel, every line written to it a message."""

__version__ = "0.1.0"
