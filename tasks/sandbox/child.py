"""Runs inside the sandbox: locks itself in, then runs the program. `tasks.sandbox.run` starts it as a script.

Standard input carries one JSON object (see `_settings` in run.py), the report goes to the file descriptor named in
it, one JSON object a line: `started`, then `passed` or `failed`; or `refused` where a limit could not be put in force.
Only the standard library is at hand, and what the kernel enforces is asked of the kernel directly.
"""

import contextlib
import ctypes
import json
import os
import resource
import struct
import sys

NOBODY = 65534
PROGRAM = "<program>"

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_EXECUTE = 1 << 0
_LANDLOCK_READ = 1 << 2 | 1 << 3

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    settings = json.load(sys.stdin)
    report_to = settings["report"]

    def report(state: str, error: str | None = None) -> None:
        os.write(report_to, (json.dumps({"state": state, "error": error}) + "\n").encode())

    try:
        _lock_in(settings)
    except OSError as error:
        report("refused", str(error))
        return
    report("started")
    error = _run(settings["source"])
    report("failed" if error else "passed", error)
    with contextlib.suppress(Exception):  # what a failed program printed last is worth showing, not worth failing for
        sys.stdout.flush()
    os._exit(0)


def _lock_in(settings: dict) -> None:
    """Give up network, privileges, and all but the allowed share of memory, time, files. Raises OSError."""
    alone = settings["mode"] == "limits"
    root = os.geteuid() == 0
    if alone:
        # Not every machine lets a process have a network of its own; Landlock below still refuses TCP then.
        _libc.unshare(_CLONE_NEWNET if root else _CLONE_NEWUSER | _CLONE_NEWNET)
    for name, limit in settings["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    if root:
        _become_nobody()
    if alone:
        _confine_to(settings["scratch"])
    _forbid_fork()


def _become_nobody() -> None:
    """Root is exempt from the process limit and from file permissions, so stop being root.

    The standard library may lie where only root may look (a home folder): it stays importable through open folders.
    """

    def opened(path: str) -> str:
        return f"/proc/self/fd/{os.open(path, os.O_PATH)}" if os.path.isdir(path) else path

    packages = [module for module in sys.modules.values() if hasattr(module, "__path__")]
    for paths in [sys.path, *(package.__path__ for package in packages)]:
        paths[:] = [opened(path) for path in paths]
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def _confine_to(scratch: str) -> None:
    """Landlock: write in `scratch` alone, execute nothing, no TCP, no signals to others (each as the kernel has it).

    https://docs.kernel.org/userspace-api/landlock.html; a kernel without Landlock leaves the other limits in force.
    """
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return
    rights = 13 + (version >= 2) + (version >= 3)
    handled = ((1 << rights) - 1) & ~_LANDLOCK_READ
    attributes = struct.pack("=Q", handled)
    if version >= 4:
        attributes += struct.pack("=Q", 0b11)
    if version >= 6:
        attributes += struct.pack("=Q", 0b11)
    ruleset = _asked(_libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0))
    folder = os.open(scratch, os.O_PATH)
    beneath = struct.pack("=Qi", handled & ~_LANDLOCK_EXECUTE, folder)
    _asked(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, beneath, 0))
    _asked(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0))
    os.close(folder)
    os.close(ruleset)


def _asked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return answer


def _forbid_fork() -> None:
    """Try what the process limit must refuse: some hosts ignore it, and there a fork bomb would be free to run."""
    try:
        child = os.fork()
    except BlockingIOError:
        return
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    raise OSError("this machine does not enforce the limit on processes (RLIMIT_NPROC)")


def _run(source: str) -> str | None:
    """Run the program to its last line; the error as one line when it does not get there."""
    try:
        exec(compile(source, PROGRAM, "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
    except BaseException as error:
        return _one_line(error, source)
    return None


def _one_line(error: BaseException, source: str) -> str:
    try:
        message = str(error)
    except Exception:
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    lines = source.split("\n")
    place, trace = 0, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == PROGRAM:
            place = trace.tb_lineno
        trace = trace.tb_next
    if 0 < place <= len(lines):
        text += f" (line {place}: {lines[place - 1].strip()})"
    return " ".join(text.split())[:300]


if __name__ == "__main__":
    main()
