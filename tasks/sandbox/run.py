"""Run a program nobody has read, in a process of its own that can do little harm.

Two modes. `bubblewrap`: own namespaces, a read-only view of the interpreter and system libraries alone, a scratch
folder of bounded size in memory, no network. `limits`: the same resource limits without the namespaces; where the
kernel has Landlock (5.13) writes outside the scratch folder and execution of other programs are refused, and the
network as far as the machine lets a process leave it, but files can be read. In both modes the program has an empty
environment, the standard library and no packages, and may start neither processes nor threads.

Against a program that *means* to be scored as passed this is no defence: it runs in the interpreter that reports on it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, Literal

Mode = Literal["bubblewrap", "limits"]

OUTPUT_BYTES = 256 * 1024
"""No file the program writes, its output included, gets longer."""
SCRATCH_BYTES = 64 * 1024 * 1024

_CHILD = Path(__file__).with_name("child.py")
_NOBODY = 65534


class SandboxError(RuntimeError):
    """The sandbox itself is not available. The message is one line."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended: `ok` when its last line was reached, else the `error` in one line.

    `output` is what it printed, cut at OUTPUT_BYTES; `seconds` is wall time with the start of the interpreter."""

    ok: bool
    error: str | None
    seconds: float
    output: str


def run_python(
    source: str, *, timeout_s: float = 5.0, memory_mb: int = 512, require: Mode | None = None
) -> Outcome:
    """Run `source` to its end, at most `timeout_s` seconds of wall time and `memory_mb` MiB of address space.

    `require` names the mode that must be used; None takes bubblewrap where it works, else limits.
    Raises SandboxError when the mode is not available. No process and no file is left behind.
    """
    mode = require or ("limits" if _bubblewrap_fault() else "bubblewrap")
    if mode == "bubblewrap" and (fault := _bubblewrap_fault()):
        raise SandboxError(f"the bubblewrap sandbox is required but does not work here: {fault}")
    return _run(source, timeout_s, memory_mb, mode)


def run_many(
    sources: Iterable[str],
    *,
    workers: int = 2,
    timeout_s: float = 5.0,
    memory_mb: int = 512,
    require: Mode | None = None,
) -> list[Outcome]:
    """`run_python` on each source, `workers` at a time; the outcomes in the order of the sources."""
    run = partial(run_python, timeout_s=timeout_s, memory_mb=memory_mb, require=require)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, sources))


def check(mode: Mode) -> None:
    """Raises SandboxError when programs cannot be run in this mode here."""
    if mode == "bubblewrap" and (fault := _bubblewrap_fault()):
        raise SandboxError(f"the bubblewrap sandbox is required but does not work here: {fault}")
    if mode == "limits":
        run_python("pass", timeout_s=20.0, require=mode)


@cache
def _bubblewrap_fault() -> str | None:
    """Why bubblewrap cannot be used here; None when it can: tried once, with a real program."""
    if shutil.which("bwrap") is None:
        return "no program `bwrap` on the PATH; install the package bubblewrap"
    try:
        outcome = _run("import math", timeout_s=20.0, memory_mb=512, mode="bubblewrap")
    except SandboxError as error:
        return str(error)
    return outcome.error


def _run(source: str, timeout_s: float, memory_mb: int, mode: Mode) -> Outcome:
    if sys.platform != "linux":
        raise SandboxError(f"model-written code is run on Linux only, this is {sys.platform}; use a container")
    with (
        tempfile.TemporaryDirectory(prefix="leeway-") as scratch,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as printed,
        tempfile.TemporaryFile() as reported,
    ):
        if mode == "limits" and os.geteuid() == 0:
            os.chown(scratch, _NOBODY, _NOBODY)
        settings = _settings(source, timeout_s, memory_mb, mode, scratch, reported.fileno())
        given.write(json.dumps(settings).encode())
        given.seek(0)
        began = time.perf_counter()
        code = _wait(_command(mode), given, printed, reported, scratch, timeout_s)
        seconds = time.perf_counter() - began
        output = _text(printed)
        reports = [json.loads(line) for line in _text(reported).splitlines()]
    error = f"no end after {timeout_s:g} s" if code is None else _error(reports, code, output)
    return Outcome(error is None, error, seconds, output)


def _settings(source: str, timeout_s: float, memory_mb: int, mode: Mode, scratch: str, report: int) -> dict:
    """What the child is told. The limit on processes is zero: the program's own is there already."""
    return {
        "source": source,
        "mode": mode,
        "scratch": scratch,
        "report": report,
        "limits": {
            "AS": memory_mb * 1024 * 1024,
            "CPU": math.ceil(timeout_s) + 1,
            "NPROC": 0,
            "FSIZE": OUTPUT_BYTES,
            "NOFILE": 64,
            "CORE": 0,
        },
    }


def _command(mode: Mode) -> list[str]:
    """The command line: the interpreter without site packages and environment, inside bubblewrap or by itself."""
    python = os.path.realpath(sys.executable)
    interpreter = [python, "-I", "-S", "-B", "-X", "utf8"]
    if mode == "limits":
        return [*interpreter, str(_CHILD)]
    shown = {"/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", os.path.realpath(sys.base_prefix)}
    # Real root needs no user namespace, and must not have one: in it the program could not become another user,
    # and root's processes are not counted against any limit.
    root = os.geteuid() == 0
    apart = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    rights = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user"]
    return [
        "bwrap", "--die-with-parent", *apart, *rights,
        *(part for path in sorted(shown) for part in ("--ro-bind-try", path, path)),
        "--ro-bind", str(_CHILD), "/sandbox_child.py",
        "--dev", "/dev", "--proc", "/proc",
        "--perms", "1777", "--size", str(SCRATCH_BYTES), "--tmpfs", "/scratch", "--chdir", "/scratch",
        *interpreter, "/sandbox_child.py",
    ]  # fmt: skip


def _wait(
    command: list[str], given: IO[bytes], printed: IO[bytes], reported: IO[bytes], scratch: str, timeout_s: float
) -> int | None:
    """Start the child and wait for its end; its exit status, None when the time ran out."""
    executable = shutil.which(command[0])
    process = subprocess.Popen(
        command,
        executable=executable,
        stdin=given,
        stdout=printed,
        stderr=subprocess.STDOUT,
        pass_fds=(reported.fileno(),),
        cwd=scratch,
        env={},
        start_new_session=True,
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _error(reports: list[dict], code: int, output: str) -> str | None:
    """Read the child's reports; raises SandboxError when the program was not even started."""
    last = reports[-1] if reports else {"state": "absent"}
    if last["state"] == "absent":
        raise SandboxError(f"the sandbox did not start: {' '.join(output.split())[-300:] or f'exit status {code}'}")
    if last["state"] == "refused":
        raise SandboxError(f"the sandbox cannot be locked: {last['error']}")
    if last["state"] != "started":
        return last["error"]
    # bubblewrap passes a signal on as 128 + its number.
    number = -code if code < 0 else code - 128
    if number in set(signal.Signals):
        return f"killed by {signal.Signals(number).name}"
    return f"left before its last line with exit status {code}"


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(OUTPUT_BYTES).decode(errors="replace")
