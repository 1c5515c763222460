"""Run a program that a language model wrote, and test it, in two processes that can do no harm
(inside.py).

Each has a bubblewrap of its own: namespaces, a read-only view of the interpreter and its libraries,
no file to write, a filter of system calls (calls.py), an empty environment, limits on memory, time
and processes. A verdict is believed with a number used once, which only the tests' process is
told."""

from __future__ import annotations

import json
import math
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tasks.base import TaskError
from tasks.sandbox.calls import filter_program

START_S = 60.0  # until both processes must be ready, on an overloaded machine too
LONGEST_ERROR = 300
_FOLDER = Path(__file__).parent
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache")


class SandboxError(RuntimeError):
    """The machine failed, not the program: there is no verdict."""


@dataclass(frozen=True, slots=True)
class SandboxJob:
    """What is run: a model's program after a prelude, and tests that reach their last line when all
    is right. They use names of the prelude and then of the program; `entry_point` is the program's
    even where the prelude has it."""

    program: str
    tests: str = ""
    prelude: str = ""
    entry_point: str | None = None


def run_job(
    job: SandboxJob, *, timeout_s: float = 5.0, memory_mb: int = 512, isolated: bool = True
) -> str | None:
    """Run a program and its tests, each with `memory_mb` MiB of address space and, once both
    processes are ready, at most `timeout_s` seconds together. None where both reached their last
    line, else why not, in one line.

    Without `isolated` only limits are in force, for trusted programs. No process is left. Raises
    SandboxError, and TaskError for tests that hand over what no message carries."""
    if isolated and (fault := bubblewrap_fault()):
        raise SandboxError(f"programs cannot be run: {fault}")
    return _run(job, timeout_s, memory_mb, isolated)


@cache
def bubblewrap_fault() -> str | None:
    """Why bubblewrap cannot be used here; None when it can: tried once, with a real program."""
    if shutil.which("bwrap") is None:
        return "there is no `bwrap` on the PATH; install bubblewrap (apt install bubblewrap)"
    try:
        return _run(SandboxJob("import math"), timeout_s=START_S, memory_mb=512, isolated=True)
    except SandboxError as error:
        return str(error)


def _run(job: SandboxJob, timeout_s: float, memory_mb: int, isolated: bool) -> str | None:
    nonce, before = secrets.token_hex(16), _killed_for_memory()
    limits = {
        "AS": memory_mb << 20,
        "CPU": math.ceil(timeout_s) + 1,
        "FSIZE": 0,
        "NOFILE": 64,
        "NPROC": 0,
        "CORE": 0,
    }
    config = json.dumps({"limits": limits, "drop_root": isolated and os.geteuid() == 0})
    try:
        with ExitStack() as stack:
            told, complaints, program = _start(
                stack, config, {**asdict(job), "nonce": nonce}, isolated
            )
            state, error = _told(told, nonce, START_S)
            if state != "started":
                said = os.pread(complaints, 4096, 0).decode(errors="replace").strip().splitlines()
                raise SandboxError(
                    said[-1][:LONGEST_ERROR]
                    if said
                    else f"no program was ready within {START_S:g} s"
                )
            state, error = _told(told, nonce, timeout_s)
            if state == "ended":
                error = _how_it_ended(program, timeout_s)
            if state in ("ended", "absent") and _killed_for_memory() > before:
                raise SandboxError("the host ran out of memory while a program was run")
    except OSError as failed:
        raise SandboxError(f"no process can be started: {failed}") from failed
    if state == "unsupported":
        raise TaskError(f"the tests cannot be run apart from the program: {error}")
    text = f"no end after {timeout_s:g} s" if state == "late" else error or "the tests were ended"
    return (
        None
        if state == "passed"
        else "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode()
            for character in text
        )[:LONGEST_ERROR]
    )


def _start(
    stack: ExitStack, config: str, job: dict[str, str | None], isolated: bool
) -> tuple[socket.socket, int, subprocess.Popen[bytes]]:
    """The socket of the verdict, the file of complaints, the program's process. None is left when
    the stack ends."""

    def file(data: bytes = b"") -> int:
        descriptor = os.memfd_create("leeway")  # a full disk cannot fail a program
        stack.callback(os.close, descriptor)
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def process(role: str, stdin: int, *ends: int) -> subprocess.Popen[bytes]:
        command = [
            os.path.realpath(sys.executable),
            "-I",
            "-S",
            "-B",
            "-X",
            "utf8",
            str(_FOLDER / "inside.py"),
        ]
        command, passed = [*command, role, config, *map(str, ends)], list(ends)
        if isolated:
            passed.append(rules := file(filter_program()))
            command = [*_bubblewrap(), "--seccomp", str(rules), "--", *command]
        started = subprocess.Popen(
            command,
            executable=shutil.which(command[0]),
            pass_fds=passed,
            cwd="/",
            env={},
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            start_new_session=True,
        )
        running.append(started)
        return started

    (told, theirs), complaints = socket.socketpair(type=socket.SOCK_SEQPACKET), file()
    stack.enter_context(told)
    stack.callback(_end, running := list[subprocess.Popen[bytes]]())
    with theirs, ExitStack() as pipes:
        (asked, ask), (answered, answer) = os.pipe(), os.pipe()
        for end in (asked, ask, answered, answer):
            pipes.callback(os.close, end)
        process("checker", file(json.dumps(job).encode()), answered, ask, theirs.fileno())
        return told, complaints, process("program", subprocess.DEVNULL, asked, answer)


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    """Kill what still runs, and wait for the first process of each bubblewrap, which ends after all
    its others."""
    for process in running:
        if process.returncode is None:  # not yet reaped: the number still names its group
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            first = []
            for child in children:
                with suppress(ProcessLookupError):  # it has ended since
                    first.append(os.pidfd_open(int(child)))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for descriptor in first:
                select.select([descriptor], [], [])
                os.close(descriptor)


def _bubblewrap() -> list[str]:
    # Real root needs no user namespace and must not have one: its processes in it could not become
    # nobody's.
    rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    python, package = os.path.realpath(sys.base_prefix), str(_FOLDER.parent / "__init__.py")
    above = sorted(
        {str(folder) for path in (python, str(_FOLDER)) for folder in Path(path).parents} - {"/"}
    )
    return [
        "bwrap", "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc",
        "--unshare-uts", "--hostname", "leeway-sandbox", "--unshare-cgroup-try",
        *(rights if os.geteuid() == 0 else ["--unshare-user"]),
        # nobody may enter what it makes by itself
        *(part for path in above for part in ("--dir", path)),
        *(
            part
            for path in (*_SYSTEM, python, str(_FOLDER), package)
            for part in ("--ro-bind-try", path, path)
        ),
        "--dev-bind", "/dev/null", "/dev/null", "--remount-ro", "/",
    ]  # fmt: skip


def _told(told: socket.socket, nonce: str, seconds: float) -> tuple[str, str | None]:
    """The checker's next state and error; `late` where the time is up before, `absent` where it has
    ended."""
    told.settimeout(seconds)
    try:
        line = json.loads(told.recv(1 << 16) or "{}")
    except TimeoutError:
        return "late", None
    return (line["state"], line["error"]) if line.get("nonce") == nonce else ("absent", None)


def _how_it_ended(program: subprocess.Popen[bytes], timeout_s: float) -> str:
    with suppress(subprocess.TimeoutExpired):
        code = program.wait(timeout_s)
        killed = -code if code < 0 else code - 128  # bubblewrap's way to say so
        if killed in signal.Signals.__members__.values():
            return f"killed by {signal.Signals(killed).name}"
        return f"left before its last line with exit status {code}"
    return "the program's process closed its channel"


def _killed_for_memory() -> int:
    """How many processes the kernel has killed for want of memory; 0 where it does not say."""
    with suppress(OSError), open("/proc/vmstat", encoding="ascii") as lines:
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    return 0
