"""The commands: one module for each. Each imports what does the work late, so that --help is instant."""

import signal
import sys

if (sys.argv[0] == "-m" or sys.argv[0].rpartition("/")[2].startswith("futebus")) and (
    signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    # Ctrl-C while a command is still being loaded just ends it. Python would show where, a page of what nobody asked for. So
    # nothing is imported before this that takes its time, as pathlib does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
