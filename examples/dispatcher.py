"""Hands out tasks, each to one worker, and again if that worker dies before it is done: a master in the middle.

In three shells, the first of them after `. .venv/bin/activate`, so that Python finds the module futebus:

    python examples/dispatcher.py /mnt/bus/S_tasks       # this, until Ctrl-C
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

import sys
from collections import deque

from futebus import client


def dispatch(service: client.Service[str]) -> None:
    """Hands out tasks until the bus is gone."""
    tasks: deque[str] = deque()
    idle: deque[int] = deque()
    """Workers that wait, by their numbers, who has waited longest first."""
    working: dict[int, str] = {}
    """What each worker is doing."""

    for worker, what, text in service.events():
        if what is client.What.CLOSED:
            if worker in working:
                tasks.appendleft(working.pop(worker))
            if worker in idle:
                idle.remove(worker)
        elif text == "ready":
            working.pop(worker, None)
            if worker not in idle:  # who says it twice has place for one all the same
                idle.append(worker)
        elif text.startswith("task: "):
            tasks.append(text.removeprefix("task: "))
        while tasks and idle:
            worker, task = idle.popleft(), tasks.popleft()
            working[worker] = task
            service.answer(worker, task)  # if it has just gone, the next event says so


def main() -> None:
    """Runs it."""
    if len(sys.argv) != 2:
        sys.exit("usage: dispatcher.py CHANNEL, an S channel on a mounted bus")
    try:
        with client.serve(sys.argv[1]) as service:
            print(f"tasks written to {service.path} are handed out from now on", flush=True)
            dispatch(service)
    except (client.ClientError, ValueError) as error:
        sys.exit(f"dispatcher.py: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
