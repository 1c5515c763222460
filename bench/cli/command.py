"""One convention for every command: paths relative to the checkout, one line for an error, and the
exit status."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Self

from bench.config.errors import ConfigError
from bench.config.paths import CONF, PROJECT
from bench.config.section import Section, parse
from bench.config.settings import Folder
from methods.engine import tensor
from results.store.cells import Store
from results.store.errors import (
    OWN_PACKAGES,
    USAGE_ERROR,
    is_own,
    log_to_stderr,
    one_line,
    printable,
)

FAILED, INTERRUPTED = 1, 130
OF_FILES = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.EFBIG,
    errno.EIO,
    errno.ELOOP,
)
"""Errors of a path that was given, or of the disk behind it."""
OPTION = re.compile("[.=]")
"""What ends the name of a command's own option."""


class Options(Section):
    """A command's own options, typed."""

    @classmethod
    def from_args(cls, options: Mapping[str, Any]) -> Self:
        """Raises ConfigError, one line."""
        return parse(cls, options, "")


class StoreOptions(Options):
    """Options of a command on a store, which `store.dir` names."""

    store: Folder

    def opened(self) -> Store:
        """Raises ValueError, one line, where there is no such folder."""
        if not self.store.dir.is_dir():
            raise ValueError(f"store.dir={self.store.dir}: no such folder; give the store of a run")
        return Store(self.store.dir)


_pressed = threading.Event()
"""Whether Ctrl-C was pressed during this command: libraries may answer it with an error of their
own."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    """React to Ctrl-C as Python does; inside an import, where libraries swallow the exception or
    fail with another one, end at once."""
    _pressed.set()
    outer = frame
    while outer is not None:
        if outer.f_code.co_filename == "<frozen importlib._bootstrap>":
            _say_interrupted()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        outer = outer.f_back
    signal.default_int_handler(number, frame)


def _say_interrupted() -> int:
    print("interrupted: the same command resumes where this one stopped", file=sys.stderr)
    return INTERRUPTED


def run_command(body: Callable[[], int | None]) -> int:
    """Run a command and return its exit status: that of `body` (None counts as 0), 2 if the command
    is wrong.

    Relative paths start at the checkout, or in the folder of a command that is given outside of it.
    An error of the project itself (ConfigError, ModelError,
    TaskError, StoreError, …), a ValueError that its code raises, or a file that cannot be read or
    written is a wrong command: one line on stderr. Any other error is a bug and keeps its
    traceback. Of several processes that torchrun has started the first runs the command, and the
    others follow it."""
    log_to_stderr()
    _pressed.clear()
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    ):
        signal.signal(signal.SIGINT, _interrupt)
    rank, size = tensor.torchrun()
    if rank:
        from methods.engine.loading import load_model  # only here: it costs torch

        return tensor.follow(load_model)
    if size > 1:
        tensor.dismiss_at_exit()  # they wait for this process
    try:
        if not CONF.is_dir():
            raise ConfigError(
                f"{CONF}: no such folder; Leeway is run from its checkout, which holds conf/: "
                "clone it, then `make setup`"
            )
        with chdir(PROJECT) if Path.cwd().is_relative_to(PROJECT) else nullcontext():
            return body() or 0
    except KeyboardInterrupt:
        return _say_interrupted()
    except Exception as error:
        return _say_interrupted() if _pressed.is_set() else _say_error(error)


def _say_error(error: Exception) -> int:
    """Print the line of a wrong command; raises any other error again."""
    if isinstance(error, OSError):
        if error.errno not in OF_FILES:
            raise error
        print(
            f"error: {printable(str(error.filename or 'a file'))}: {error.strerror}",
            file=sys.stderr,
        )
    else:
        if not (is_own(error) or (type(error) is ValueError and _raised_here(error))):
            raise error
        print(f"error: {one_line(error)}", file=sys.stderr)
    return USAGE_ERROR


def run_yaml_command(
    name: str, run: Callable[[Mapping[str, Any]], int | None], argv: Sequence[str] | None = None
) -> int:
    """Run a command whose options are conf/NAME.yaml: `run` gets the composed configuration as
    plain data.

    Returns the exit status, as `run_command`. Hydra's informative flags (--help, --cfg job, …)
    print and return 0."""

    def body() -> int | None:
        from bench.config.compose import composer
        from bench.config.help import answered

        words = sys.argv[1:] if argv is None else argv
        if answered(name, words):
            return 0
        with composer(words, name) as hydra:
            return run(hydra.command(words).only_point().config)

    return run_command(body)


def parted(words: Sequence[str], name: str) -> tuple[Mapping[str, Any], list[str]]:
    """The composed options of conf/NAME.yaml, and the words of the command line that are none of
    its keys: those of `python -m bench`. Raises ConfigError."""
    from bench.config.compose import composer

    with composer(words, name) as conf:
        known = conf.point([], resolve=False).config
        mine = [
            word for word in words if word.lstrip("+").partition("=")[0].partition(".")[0] in known
        ]
        options = conf.point(mine, resolve=False).config
    return options, [word for word in words if word not in mine]


def _raised_here(error: BaseException) -> bool:
    """Whether a line of the project raised the error, not a library below it."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and any(
        Path(frames[-1].filename).is_relative_to(PROJECT / room) for room in OWN_PACKAGES
    )
