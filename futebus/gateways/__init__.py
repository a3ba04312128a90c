"""Other text buses of the family, as ordinary clients of a mounted bus: a package for each protocol, and how one lives."""
