"""The commands: `python -m bench` and `python -m bench.NAME`, one a file; what they share is in
`cli`. They read the configuration (`config`), run cells (`run`) and report them (`reports`)."""

import os
import signal
import sys

# a command starts: Ctrl-C ends it silently until `run_command` can say a line
if sys.argv[:1] == ["-m"]:
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
