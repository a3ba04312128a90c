"""A writer that remembers what was accepted: `writer.py CHANNEL NAME ACCEPTED`.

Writes lines `NAME NUMBER` in blocks of odd sizes until SIGTERM. Behind each write, what the kernel says was accepted goes to the
file ACCEPTED, as ranges `FIRST STOP`. Goes on when the channel or the bus comes back, with numbers that were not used before.
"""

import contextlib
import os
import random
import signal
import sys
import time


def main() -> None:
    """Writes until it is told to end."""
    channel, name, accepted = sys.argv[1:]
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ends.append(number))
    dice = random.Random(name)
    number = 0
    with open(accepted, "w", buffering=1) as log:
        while not ends:
            descriptor = None
            try:
                descriptor = os.open(channel, os.O_WRONLY)
                while not ends:
                    first, number = number, number + dice.choice((1, 3, 40, 500))
                    lines = [b"%s %d\n" % (name.encode(), each) for each in range(first, number)]
                    number = first + len(lines)
                    block = b"".join(lines)
                    taken = os.write(descriptor, block)
                    stop = first + block[:taken].count(b"\n")
                    if stop > first:
                        print(first, stop, file=log)
                    if taken < len(block):  # what was not accepted is not sent again, and the number not used again
                        continue
                    time.sleep(dice.choice((0, 0.001, 0.01)))
            except OSError:
                time.sleep(0.02)
            finally:
                if descriptor is not None:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)


if __name__ == "__main__":
    main()
