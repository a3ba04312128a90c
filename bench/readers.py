"""What blocked readers cost the daemon in memory."""

import os
import threading
import time

from . import peers


def run(count: int) -> str:
    """Blocks `count` readers on one channel, then wakes them all. Returns the lines to show."""
    with peers.futebus(f"max_clients={count + 10}") as bus:
        channel = bus.directory / "B_bench"
        channel.touch()
        idle = bus.memory()
        threading.stack_size(128 * 1024)
        readers = [os.open(channel, os.O_RDONLY) for _ in range(count)]
        threads = [threading.Thread(target=os.read, args=(reader, 100)) for reader in readers]
        for thread in threads:
            thread.start()
        while (bus.directory / "_stat").read_text().count("  read ") < count:
            time.sleep(0.1)
        blocked = bus.memory()
        channel.write_text("go\n")
        for thread in threads:
            thread.join()
        for reader in readers:
            os.close(reader)
    each = (blocked - idle) / count
    return f"{count} blocked readers: {blocked / 1e6:.0f} MB resident ({idle / 1e6:.0f} MB idle), {each:.0f} bytes a reader"
