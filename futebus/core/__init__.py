"""The bus itself: no I/O, no clock, no threads, nothing but the standard library.

Time is passed in as nanoseconds since the epoch. A call either does what it says and returns an `Effects`, which tells what
else came of it (parked calls that now have an answer, pollers to wake), or raises a `BusError` and has changed nothing.
"""
