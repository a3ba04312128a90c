"""Other text buses of the family, as ordinary clients of a mounted bus: one module a protocol."""
