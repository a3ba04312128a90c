"""What a shell script pays for one message: `echo` in a loop, or a client program for each message."""

import os
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from . import bulk, peers, servers
from .figures import Figure, Row

# The clock is read inside, so that the start of bash is not counted.
LOOP = """
begin=$EPOCHREALTIME
for ((i = 0; i < $COUNT; i++)); do %s; done
end=$EPOCHREALTIME
echo $((${end/[.,]/} - ${begin/[.,]/}))
"""
ECHO = 'echo "$i" %s "$FILE"'


def per_message(command: str, count: int, file: str = "") -> float:
    """Milliseconds per turn of a loop of bash. In the command, $i is the number of the message and $FILE the file."""
    words = ["bash", "-c", LOOP % command]
    done = subprocess.run(words, env={**os.environ, "COUNT": str(count), "FILE": file}, capture_output=True, check=True)
    return int(done.stdout.split()[-1]) / 1000 / count


def run(rounds: int, show: Callable[[str], None]) -> Row:
    """Measures all side by side, each with a subscriber that throws away what it gets."""
    row = Row("shell", "`echo $i > FILE` in a loop of bash, and what a script would do with other systems")
    null = os.open(os.devnull, os.O_RDWR)
    with ExitStack() as stack:
        stack.callback(os.close, null)
        bus = stack.enter_context(peers.futebus())
        channel = bus.directory / "B_bench"
        channel.touch()
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="futebus-bench-")))
        fifo = place / "fifo"
        os.mkfifo(fifo)
        end = os.open(fifo, os.O_RDWR)
        stack.callback(os.close, end)
        subscribers = [subprocess.Popen(["cat", str(channel)], stdout=null), subprocess.Popen(["cat"], stdin=end, stdout=null)]
        loops: dict[str, tuple[str, int, str]] = {
            "futebus: echo > B_x": (ECHO % ">", 500, str(channel)),
            "FIFO: echo > fifo": (ECHO % ">", 2000, str(fifo)),
            "file: echo >> file": (ECHO % ">>", 2000, str(place / "file")),
        }
        if absent := servers.missing("mosquitto", "mosquitto_pub", "mosquitto_sub"):
            row.notes.append(f"Mosquitto skipped: {', '.join(absent)} not installed")
        else:
            mosquitto = stack.enter_context(servers.mosquitto())
            subscribers.append(mosquitto.read(null, 0))
            loops["Mosquitto: mosquitto_pub -m"] = (f'mosquitto_pub {" ".join(mosquitto.to)} -m "$i"', 50, "")
        if absent := servers.missing("redis-server", "redis-cli"):
            row.notes.append(f"Redis skipped: {', '.join(absent)} not installed")
        else:
            redis = stack.enter_context(servers.redis())
            subscribers.append(redis.read(null, 0))
            loops["Redis: redis-cli publish"] = (f'redis-cli -p {redis.port} publish bench "$i" >/dev/null', 50, "")
        for subscriber in subscribers:
            stack.callback(bulk.end, subscriber)
        values: dict[str, list[float]] = {name: [] for name in loops}
        for round_ in range(rounds + 1):
            for name, (command, count, file) in loops.items():
                show(f"shell: {f'round {round_} of {rounds}' if round_ else 'warming up'}, {name}")
                value = per_message(command, count if round_ else count // 5, file)
                if round_:
                    values[name].append(value)
    row.figures.extend(Figure(name, "ms a message", each) for name, each in values.items())
    return row
