"""The commands: `python -m bench` and `python -m bench.NAME`."""

import os
import signal
import sys
from importlib.abc import MetaPathFinder
from importlib.util import spec_from_file_location

if sys.argv[:1] == ["-m"]:  # a command starts: Ctrl-C ends it silently until `run_command` can say a line
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))


class _FormerNames(MetaPathFinder):
    """For one release: `python -m bench.train_pair` runs `python -m bench.train pair`, and so on."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.removeprefix("bench.") in ("train_pair", "train_heads", "train_judge", "answers", "calibrate"):
            return spec_from_file_location(fullname, os.path.join(__path__[0], "train.py"))
        return None


sys.meta_path.append(_FormerNames())
