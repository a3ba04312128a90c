"""Hands out tasks, each to one worker, and again if that worker dies before it is done: a master in the middle.

In three shells:

    python examples/dispatcher.py /mnt/bus/S_tasks       # this
    exec 3<>/mnt/bus/S_tasks                             # a worker, as many as you like
    echo ready >&3
    while IFS= read -r task <&3; do
        echo "working on $task"
        echo ready >&3                                   # it is done, and here is place for the next
    done
    echo 'task: sweep the floor' > /mnt/bus/S_tasks      # whoever has something to be done

A worker says `ready` and gets the next task when there is one. Its next `ready` says that the task is done. If it closes the
channel instead, because it was killed for example, another one gets the task.
"""

import os
import sys
from collections import deque

if len(sys.argv) != 2:
    sys.exit("usage: dispatcher.py CHANNEL, an S channel on a mounted bus")
directory, name = os.path.split(sys.argv[1])
# A dot in front makes us the master. Read in bulk, the lines of many writers come with one call.
bus = os.open(os.path.join(directory, f"+.{name}"), os.O_RDWR | os.O_CREAT, 0o666)  # noqa: PTH118

tasks: deque[bytes] = deque()
idle: deque[bytes] = deque()
"""Workers that wait, by their numbers, who has waited longest first."""
working: dict[bytes, bytes] = {}
"""What each worker is doing."""

while lines := os.read(bus, 1 << 20):
    for line in lines.splitlines():
        address, _, text = line.partition(b"}")
        number, _, event = address[1:].partition(b":")
        if event == b"c":
            if number in working:
                tasks.appendleft(working.pop(number))
            if number in idle:
                idle.remove(number)
        elif text == b"ready":
            working.pop(number, None)
            idle.append(number)
        elif text.startswith(b"task: "):
            tasks.append(text.removeprefix(b"task: "))
    while tasks and idle:
        number, task = idle.popleft(), tasks.popleft()
        working[number] = task
        try:
            os.write(bus, b"{%s}%s\n" % (number, task))
        except OSError:  # it has just gone, and the next read says so
            continue
