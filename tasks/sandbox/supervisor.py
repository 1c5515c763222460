"""Starts inside the sandbox, as a script: gives up rights, starts the program's process, becomes the checker.

The argument is JSON: descriptors and limits. The program, its tests and a number used once (without which no report is
believed) come through a descriptor that is read when the program's process has been split off. The report goes to
another, one JSON object a line: `started`, then `passed` or `failed`; `refused` where a limit cannot be put in force,
`unsupported` for tests that two processes cannot run, `machine` where the host ran out of memory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parents[2]))

from tasks.sandbox import checker, confine, program, wire


def main() -> None:
    config = json.loads(sys.argv[1])
    del sys.path[0]
    memory = os.open("/proc/vmstat", os.O_RDONLY) if os.path.exists("/proc/vmstat") else None
    before = _killed_for_memory(memory)
    try:
        bounded = confine.prepare(config)
        known = confine.hide_files(config, bounded)
    except OSError as error:
        _Report(config).write("refused", _text(error))
        return
    mine, theirs = socket.socketpair()
    own = os.getpid()
    child = os.fork()
    if child == 0:
        _run_program(config, mine, theirs, bounded, own)
    theirs.close()
    report = _Report(config)
    try:
        confine.seal((own, child))
        hello = wire.receive(mine)
    except (OSError, EOFError, wire.WireError) as error:
        hello = {"refused": _text(error)}
    if "refused" in hello:
        report.write("refused", hello["refused"])
        return
    report.write("started", landlock=known, scratch=bounded)
    state, error_text = _verdict(checker.Program(mine), report.settings)
    if state != "ended":
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if state == "ended":
        killed = status == -signal.SIGKILL and _killed_for_memory(memory) > before
        state, error_text = ("machine", "the host ran out of memory") if killed else ("failed", _how_it_ended(status))
    report.write(state, error_text)


def _verdict(tested: checker.Program, settings: dict[str, Any]) -> tuple[str, str | None]:
    """State and error; the state `ended` when the program's process has left before its tests were through."""
    try:
        error = checker.check(tested, *(settings[name] for name in ("prelude", "program", "tests", "entry_point")))
        tested.end()
    except checker.Garbled as fault:
        return "failed", f"the program's process gives no answer: {fault}"
    except checker.Ended:
        return "ended", None
    except checker.Unsupported as fault:
        return "unsupported", str(fault)
    except BaseException as fault:  # whatever it is, the program has brought it about
        return "failed", f"{type(fault).__name__} while its results were read"
    return ("failed" if error else "passed"), error


class _Report:
    def __init__(self, config: dict[str, Any]) -> None:
        with open(config["settings"], "rb") as file:
            self.settings = json.load(file)
        self._file: int = config["report"]

    def write(self, state: str, error: str | None = None, **guards: Any) -> None:
        line = {"nonce": self.settings["nonce"], "state": state, "error": error, **guards}
        os.write(self._file, (json.dumps(line) + "\n").encode())


def _run_program(
    config: dict[str, Any], mine: socket.socket, theirs: socket.socket, bounded: bool, parent: int
) -> NoReturn:
    """The rest of the program's process: its output and the channel are all that it keeps."""
    mine.detach()
    os.dup2(theirs.detach(), 3)
    os.closerange(4, 1 << 20)
    channel = socket.socket(fileno=3)
    try:
        confine.die_with_parent(parent)
        confine.hide_files(config, bounded)
        confine.seal((os.getpid(),))
        wire.send(channel, {"ready": True})
    except OSError as error:
        wire.send(channel, {"refused": _text(error)})
        os._exit(1)
    try:
        program.serve(channel)
    finally:
        os._exit(1)


def _how_it_ended(status: int) -> str:
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"left before its last line with exit status {status}"


def _killed_for_memory(file: int | None) -> int:
    """How many processes the kernel has killed for want of memory since it started; 0 where it does not say."""
    if file is None:
        return 0
    lines = os.pread(file, 1 << 16, 0).decode().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
    os._exit(0)  # a program may have left no room to print in
