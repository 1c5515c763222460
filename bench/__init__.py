"""The commands: `python -m bench` and `python -m bench.NAME`."""

import os
import signal
import sys
from importlib.abc import MetaPathFinder
from importlib.util import spec_from_file_location

if sys.argv[:1] == ["-m"]:  # a command starts: Ctrl-C ends it silently until `run_command` can say a line
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))


class _FormerNames(MetaPathFinder):
    """`python -m bench.NAME` of a former name says in one line what to run instead (bench/commands/former.py)."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("bench.") and fullname.count(".") == 1 and sys.argv[:1] == ["-m"]:
            from bench.commands.former import FORMER

            if fullname.removeprefix("bench.") in FORMER:
                return spec_from_file_location(fullname, os.path.join(__path__[0], "commands", "former.py"))
        return None


sys.meta_path.append(_FormerNames())
