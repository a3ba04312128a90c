"""A channel of a mounted bus, as a program sees it."""
