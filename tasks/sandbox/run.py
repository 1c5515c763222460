"""Run a program that a language model wrote, and test it, in processes that can do little harm.

Two modes. `bubblewrap`: own namespaces, a read-only view of the interpreter and the system's libraries alone.
`limits`: the same without bubblewrap; as much of it as the machine lets a process have. In both, a system-call filter
(seccomp), Landlock where the kernel has it, limits on memory, time, files and processes, an empty environment, the
standard library and no packages. docs/sandbox.md has the threat model and what each mode stops.

The program and its tests run in two processes: the program's knows neither the tests nor the way to the verdict.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Mode = Literal["bubblewrap", "limits"]

OUTPUT_BYTES = 256 * 1024
"""No file the program writes, its output included, gets longer."""
SCRATCH_BYTES, SCRATCH_FILES = 64 * 1024 * 1024, 4096
START_S, LOOK_S = 60.0, 0.02
"""Seconds until a program's process must be ready, on an overloaded machine too; seconds between two looks at that."""

_FOLDER = Path(__file__).parent
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache")


class SandboxError(RuntimeError):
    """The sandbox or the machine failed, not the program: there is no verdict. The message is one line."""


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program did.

    ok        its last line and that of its tests were reached
    error     why not, in one line; None when ok
    seconds   wall time, with the start of the interpreter
    output    what it printed, cut at OUTPUT_BYTES
    """

    ok: bool
    error: str | None
    seconds: float
    output: str


@dataclass(frozen=True, slots=True)
class Job:
    """What is run.

    program       code that a model wrote
    tests         code that uses what the program defines and passes to its last line when all is right
    prelude       code that stands before the program and, for names that the tests take from it, before the tests
    entry_point   the name that the tests take from the program although the prelude has it, too
    """

    program: str
    tests: str = ""
    prelude: str = ""
    entry_point: str | None = None


def run_job(job: Job, *, timeout_s: float = 5.0, memory_mb: int = 512, require: Mode | None = None) -> ProgramResult:
    """Run a program and its tests, at most `timeout_s` seconds of wall time and `memory_mb` MiB of address space each.
    The time begins when the program's process is ready.

    `require` names the mode that must be used; None takes bubblewrap where it works, else limits. Whatever the program
    does is an Outcome. Raises SandboxError when the mode is not available, the machine is out of memory or disk, or the
    tests are such as two processes cannot run. No process and no file is left behind.
    """
    mode = require or best_mode()
    if mode == "bubblewrap":
        _require_bubblewrap()
    return _run(job, timeout_s, memory_mb, mode)[0]


def best_mode() -> Mode:
    """Bubblewrap where it works, else limits."""
    return "limits" if bubblewrap_fault() else "bubblewrap"


@cache
def bubblewrap_fault() -> str | None:
    """Why bubblewrap cannot be used here; None when it can: tried once, with a real program."""
    if shutil.which("bwrap") is None:
        return "no program `bwrap` on the PATH; install the package bubblewrap"
    try:
        outcome, _ = _run(Job("import math"), timeout_s=20.0, memory_mb=512, mode="bubblewrap")
    except SandboxError as error:
        return str(error)
    return outcome.error


def exposure(mode: Mode) -> str | None:
    """What a hostile program can still do here in this mode, in one line; None when nothing of it is known.

    Raises SandboxError when programs cannot be run in this mode here."""
    if mode == "bubblewrap":
        _require_bubblewrap()
        return None
    if _landlock_in_force():
        return None
    user = "every user may" if os.geteuid() == 0 else "this user may"
    return f"this kernel has no Landlock: programs can read and write all files that {user}"


def _require_bubblewrap() -> None:
    if fault := bubblewrap_fault():
        raise SandboxError(f"the bubblewrap sandbox is required but does not work here: {fault}")


@cache
def _landlock_in_force() -> bool:
    return bool(_run(Job("pass"), timeout_s=20.0, memory_mb=512, mode="limits")[1]["landlock"])


def _run(job: Job, timeout_s: float, memory_mb: int, mode: Mode) -> tuple[ProgramResult, dict[str, Any]]:
    """The outcome, and the guards that were in force. Raises SandboxError."""
    if sys.platform != "linux":
        raise SandboxError(f"model-written code is run on Linux only, this is {sys.platform}; use a container")
    nonce = secrets.token_hex(16)
    try:
        with ExitStack() as stack:
            settings, printed, reported = (_memory_file(stack) for _ in range(3))
            _write(settings, {"nonce": nonce, "program": job.program, "tests": job.tests, "prelude": job.prelude,
                              "entry_point": job.entry_point})  # fmt: skip
            command = _command(mode, _config(timeout_s, memory_mb, mode, settings, reported))
            began = time.perf_counter()
            code = _wait(command, printed, settings, reported, timeout_s)
            seconds = time.perf_counter() - began
            output = os.pread(printed, OUTPUT_BYTES, 0).decode(errors="replace")
            reports = _reports(os.pread(reported, OUTPUT_BYTES, 0), nonce)
    except OSError as error:
        raise SandboxError(f"the sandbox cannot be started: {error}") from error
    error_line = _error(reports, code, output, timeout_s)
    return ProgramResult(error_line is None, error_line, seconds, output), reports[0]


def _memory_file(stack: ExitStack) -> int:
    file = os.memfd_create("leeway")  # a full disk cannot fail a program
    stack.callback(os.close, file)
    return file


def _write(file: int, data: dict[str, Any]) -> None:
    with open(file, "wb", closefd=False) as stream:
        stream.write(json.dumps(data).encode())
        stream.seek(0)


def _config(timeout_s: float, memory_mb: int, mode: Mode, settings: int, report: int) -> dict[str, Any]:
    """What the supervisor is told before it reads the tests; the program may know it."""
    return {
        "mode": mode,
        "settings": settings,
        "report": report,
        "readable": [*_SYSTEM, os.path.realpath(sys.base_prefix)],
        "scratch_bytes": SCRATCH_BYTES,
        "scratch_files": SCRATCH_FILES,
        "limits": {
            "AS": memory_mb * 1024 * 1024,
            "CPU": math.ceil(timeout_s) + 1,
            "FSIZE": OUTPUT_BYTES,
            "NOFILE": 64,
            "CORE": 0,
        },
    }


def _command(mode: Mode, config: dict[str, Any]) -> list[str]:
    """The command line: the interpreter without site packages and environment, inside bubblewrap or by itself."""
    python = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8"]
    if mode == "limits":
        return [*python, str(_FOLDER / "supervisor.py"), json.dumps(config)]
    # Real root needs no user namespace, and must not have one: in it the program could not become another user,
    # and root's processes are not counted against any limit.
    rights = ["SYS_ADMIN", "SETUID", "SETGID"] if os.geteuid() == 0 else ["SYS_ADMIN"]
    return [
        "bwrap", "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
        "--unshare-cgroup-try", *([] if os.geteuid() == 0 else ["--unshare-user"]),
        *(part for right in rights for part in ("--cap-add", f"CAP_{right}")),
        *(part for path in sorted(set(config["readable"])) for part in ("--ro-bind-try", path, path)),
        "--ro-bind", str(_FOLDER.parent / "__init__.py"), "/leeway/tasks/__init__.py",
        "--ro-bind", str(_FOLDER), "/leeway/tasks/sandbox",
        "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/dev", "--remount-ro", "/",
        "--size", str(SCRATCH_BYTES), "--tmpfs", "/dev/shm",
        *python, "/leeway/tasks/sandbox/supervisor.py", json.dumps(config),
    ]  # fmt: skip


def _wait(command: list[str], printed: int, settings: int, reported: int, timeout_s: float) -> int | None:
    """Start the supervisor and wait for its end; its exit status, None when the time ran out."""
    executable = shutil.which(command[0])
    process = subprocess.Popen(
        command,
        executable=executable,
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=subprocess.STDOUT,
        pass_fds=(settings, reported),
        cwd="/",
        env={},
        start_new_session=True,
    )
    ended = False
    try:
        watch = os.pidfd_open(process.pid)
        try:
            ended = _ends(watch, reported, timeout_s)
        finally:
            os.close(watch)
    finally:
        # Not yet reaped: the number still names this group, whose members cannot leave it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    return code if ended else None


def _ends(watch: int, reported: int, timeout_s: float) -> bool:
    """Whether a process ends within START_S without a report, or within `timeout_s` after its first one."""
    poll, until = select.poll(), time.monotonic() + START_S
    poll.register(watch, select.POLLIN)
    while not os.fstat(reported).st_size:
        if poll.poll(LOOK_S * 1000):
            return True
        if time.monotonic() > until:
            return False
    return bool(poll.poll(timeout_s * 1000))


def _reports(written: bytes, nonce: str) -> list[dict[str, Any]]:
    """The supervisor's own lines: those with the number that it alone was told."""
    lines = []
    for raw in written.splitlines():
        with suppress(ValueError, RecursionError):
            line = json.loads(raw)
            if isinstance(line, dict) and line.get("nonce") == nonce:
                lines.append(line)
    return lines


def _error(reports: list[dict[str, Any]], code: int | None, output: str, timeout_s: float) -> str | None:
    """The program's error, None when it passed. Raises SandboxError where it was not the program that failed."""
    last = reports[-1] if reports else {"state": "absent"}
    state = last["state"]
    if state == "passed":
        return None
    if state == "failed":
        return _printable(str(last["error"]))
    if state == "absent" and code is None:
        raise SandboxError(f"the sandbox did not start within {START_S:g} s: the machine is overloaded")
    if state == "absent":
        raise SandboxError(f"the sandbox did not start: {' '.join(output.split())[-300:] or f'exit status {code}'}")
    if state == "refused":
        raise SandboxError(f"the sandbox cannot be locked: {last['error']}")
    if state == "unsupported":
        raise SandboxError(f"the tests cannot be run apart from the program: {last['error']}")
    if state == "machine":
        raise SandboxError(f"{last['error']} while a program was run")
    if code is None:
        return f"no end after {timeout_s:g} s"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        # Neither the program nor a limit of ours can do that.
        raise SandboxError("the sandbox was killed from outside; the machine may be short of memory")
    return f"the tests were ended with exit status {code}"


def _printable(text: str) -> str:
    """The text with what a terminal acts on, and what UTF-8 cannot carry, as backslash escapes."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
