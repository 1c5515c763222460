"""Commands in forked copies of one warm process, which has imported torch and transformers once.

Each copy leads a session of its own, has limits on CPU time, memory and file size, and is killed with its session when
its time is over. `real` runs the same command as a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import psutil

PROJECT = Path(__file__).resolve().parents[2]
FORK = multiprocessing.get_context("fork")
MEMORY, FILE = 16 << 30, 1 << 30
LIBRARIES = ("torch", "transformers.models.auto.tokenization_auto", "transformers.models.auto.modeling_auto",
             "transformers.models.llama.modeling_llama", "pandas", "scipy.stats", "statsmodels.api", "rich.table")


def warm_up() -> None:
    """Import what every command imports. Nothing is computed: a thread would not survive the fork."""
    import bench

    for name in LIBRARIES:
        import_module(name)
    import torch

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(bench.__path__, "bench."):
        if not module.name.endswith("__main__") and not module.name.startswith("bench.run.vllm."):  # of another process
            import_module(module.name)

    os.environ["LEEWAY_LOCK"] = f"{tempfile.gettempdir()}/leeway.lock"  # no trial need be alone on the machine


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command left behind.

    status   its exit status; negative for a signal, None where it was stopped at its limit.
    out      standard output.
    err      standard error, without the progress that a terminal would overwrite.
    seconds  from its start to its end.
    """

    status: int | None
    out: str
    err: str
    seconds: float

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.err

    @property
    def errors(self) -> list[str]:
        """The lines of the error stream that are no progress or warning."""
        return [line for line in self.err.splitlines() if line.strip() and not line.startswith("WARNING: ")]


class Running:
    """A command that runs. `pid` leads its session; `began` is the time of its start."""

    def __init__(self, pid: int, poll: Callable[[float], int | None], out: Path, err: Path) -> None:
        self.pid, self._poll, self._out, self._err = pid, poll, out, err
        self.began = time.monotonic()

    def ended(self, limit: float) -> Ended:
        """Wait for the command, at most `limit` seconds since its start; then it is killed with its session. One that
        reached its limit of CPU time counts as stopped too."""
        status = self.poll(max(0.0, self.began + limit - time.monotonic()))
        seconds = time.monotonic() - self.began
        if status is None:
            end(self.session())
            self._poll(10)
        return Ended(None if status == -signal.SIGXCPU else status, _text(self._out), _text(self._err), seconds)

    def poll(self, seconds: float = 0.0) -> int | None:
        """The exit status; None while the command runs, after `seconds` of waiting."""
        return self._poll(seconds)

    def session(self) -> list[psutil.Process]:
        """Every living process that descends from the command or belongs to its session."""
        return session_of(self.pid)


def start(words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None,
          cpu: float = 300.0) -> Running:
    """Start `python -m WORDS` in a forked copy of this process; `folder` takes its output."""
    out, err = _outputs(folder)
    process = FORK.Process(target=_copy, args=(list(words), out, err, dict(environment or {}), cpu))
    process.start()
    assert process.pid is not None

    def poll(seconds: float) -> int | None:
        process.join(seconds)
        return process.exitcode

    return Running(process.pid, poll, out, err)


def real(words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Running:
    """Start `python -m WORDS` as a process of its own."""
    out, err = _outputs(folder)
    with open(out, "wb") as first, open(err, "wb") as second:
        process = subprocess.Popen([sys.executable, "-m", *words], cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=first,
                                   stderr=second, env=os.environ | dict(environment or {}), start_new_session=True)

    def poll(seconds: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        return None

    return Running(process.pid, poll, out, err)


def session_of(leader: int) -> list[psutil.Process]:
    """Every living process whose session is the leader's, or that descends from it."""
    members = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                members[process.pid] = process
    with suppress(psutil.NoSuchProcess):
        members |= {process.pid: process for process in psutil.Process(leader).children(recursive=True)
                    if process.status() != psutil.STATUS_ZOMBIE}
    return list(members.values())


def end(processes: Sequence[psutil.Process]) -> None:
    """Kill these processes and wait until they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)


def _copy(words: Sequence[str], out: Path, err: Path, environment: Mapping[str, str], cpu: float) -> None:
    """The forked copy: what `python -m WORDS` does, by the `main()` of its module."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for path, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu), int(cpu) + 5))
    for kind, limit in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, FILE), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (limit, limit))
    os.environ.update(environment)
    module, *arguments = words
    sys.argv = [module, *arguments]
    packages = ("bench", "plots", "models.tiny.train")
    sys.exit(import_module(f"{module}.__main__" if module in packages else module).main(arguments))


def _outputs(folder: Path) -> tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    number = f"{os.getpid()}-{time.monotonic_ns()}"
    return folder / f"{number}.out", folder / f"{number}.err"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="backslashreplace") if path.exists() else ""


def remove(path: Path) -> None:
    """Remove a folder with all it holds, where there is one."""
    shutil.rmtree(path, ignore_errors=True)
