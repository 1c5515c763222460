"""The sandbox, with real processes: each misdeed ends as a failed outcome, soon, and leaves nothing behind."""

import os
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tasks.sandbox import landlock
from tasks.sandbox import run as sandbox
from tasks.sandbox.run import OUTPUT_BYTES, Job, ProgramResult, SandboxError, run_job

pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="the sandbox is made of Linux system calls")


@pytest.fixture(params=["limits", "bubblewrap"])
def mode(request) -> str:
    if request.param == "bubblewrap" and (fault := sandbox.bubblewrap_fault()):
        pytest.skip(f"bubblewrap does not work here: {fault}")
    return request.param


def run_python(source: str, **options) -> ProgramResult:
    return run_job(Job(source), **options)


def sandboxed() -> set[int]:
    """The processes that run the sandbox's child: this process' own, and orphans (nobody's)."""
    commands, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            commands[int(folder.name)] = (folder / "cmdline").read_bytes()
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # the process ended meanwhile
    found = set()
    for process in (p for p, command in commands.items() if b"supervisor.py" in command):
        top = process
        while b"supervisor.py" in commands.get(top, b"") or b"bwrap" in commands.get(top, b""):
            top = parents.get(top, 1)
        if top in (1, os.getpid()):
            found.add(process)
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind():
    before, shared_memory = sandboxed(), Path("/proc/sysvipc/shm").read_text()
    yield
    until = time.monotonic() + 2
    while sandboxed() - before and time.monotonic() < until:
        time.sleep(0.05)
    assert not sandboxed() - before
    assert Path("/proc/sysvipc/shm").read_text() == shared_memory


def test_a_program_that_reaches_its_end_is_ok(mode):
    outcome = run_python("import math, statistics\nprint('π', math.floor(statistics.mean([3, 4])))", require=mode)
    assert (outcome.ok, outcome.error, outcome.output) == (True, None, "π 3\n")
    assert 0 < outcome.seconds < 5


def test_what_is_printed_last_is_shown(mode):
    outcome = run_job(Job("def f(): print('said')", "f()"), require=mode)
    assert (outcome.ok, outcome.output) == (True, "said\n")


def test_a_program_that_will_not_end_has_its_verdict(mode):
    source = ("import sys, time\ndef f():\n    class Slow:\n        def flush(self): time.sleep(60)\n"
              "    sys.stdout = Slow()")
    outcome = run_job(Job(source, "f()"), require=mode)
    assert outcome.ok and outcome.seconds < 4


def test_a_checker_killed_from_outside_is_no_verdict(monkeypatch):
    popen = subprocess.Popen

    def start(*args, **options):
        process = popen(*args, **options)
        threading.Timer(0.5, process.kill).start()
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(SandboxError, match=r"killed from outside|did not start"):
        run_python("import time\ntime.sleep(30)", require="limits")


def test_a_slow_start_is_not_the_programs_time(monkeypatch):
    command = sandbox._command
    monkeypatch.setattr(sandbox, "_command",
                        lambda *given: ["sh", "-c", '/bin/sleep 1.5; exec "$@"', "sh", *command(*given)])
    assert run_python("x = 1", timeout_s=1.0, require="limits").ok
    monkeypatch.setattr(sandbox, "START_S", 0.5)
    with pytest.raises(SandboxError, match=r"did not start within 0\.5 s: the machine is overloaded"):
        run_python("x = 1", timeout_s=1.0, require="limits")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("x = 1\nassert x == 2", "AssertionError (line 2: assert x == 2)"),
        ("def f(:", "SyntaxError: invalid syntax (<program>, line 1)"),
        ("def f():\n    return {}['a']\nf()", "KeyError: 'a' (line 2: return {}['a'])"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines (line 1: raise ValueError('two\\nlines'))"),
        ("import sys\nsys.exit(0)", "SystemExit: 0 (line 2: sys.exit(0))"),
        ("import os\nos._exit(0)", "left before its last line with exit status 0"),
        ("import os\nos.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("input()", "EOFError: EOF when reading a line (line 1: input())"),
        ("class E(Exception):\n    def __str__(self): 1/0\nraise E", "E (line 3: raise E)"),
    ],
)
def test_an_error_is_told_in_one_line(source, error):
    outcome = run_python(source, require="limits")
    assert not outcome.ok
    assert outcome.error == error


def test_an_endless_loop_is_stopped(mode):
    outcome = run_python("while True: pass", timeout_s=1.0, require=mode)
    assert (outcome.ok, outcome.error) == (False, "no end after 1 s")
    assert outcome.seconds < 2.5


def test_a_stubborn_program_is_stopped(mode):
    source = "import signal, time\nfor s in (1, 2, 3, 15, 24): signal.signal(s, signal.SIG_IGN)\ntime.sleep(60)"
    outcome = run_python(source, timeout_s=1.0, require=mode)
    assert outcome.error == "no end after 1 s"
    assert outcome.seconds < 2.5


def test_no_process_can_be_started(mode):
    """A bounded bomb: were the limit not to hold, it would start at most 100 processes that end within seconds."""
    bomb = (
        "import os, time\nstarted = 0\nfor _ in range(100):\n    try:\n        child = os.fork()\n"
        "    except OSError:\n        continue\n    if child == 0:\n        time.sleep(2)\n        os._exit(0)\n"
        "    started += 1\nassert started == 0, f'{started} processes'"
    )
    assert run_python(bomb, require=mode).error is None
    assert "BlockingIOError" in run_python("import os\nos.fork()", require=mode).error
    assert "BlockingIOError" in run_python("import subprocess\nsubprocess.run(['true'])", require=mode).error
    assert "start new thread" in run_python("import threading\nthreading.Thread().start()", require=mode).error


def test_memory_is_limited(mode):
    assert "MemoryError" in run_python("x = bytearray(2 * 1024**3)", require=mode).error
    assert run_python("x = bytearray(256 * 1024**2)", require=mode).ok
    assert "MemoryError" in run_python("x = bytearray(256 * 1024**2)", memory_mb=200, require=mode).error


def test_limits_cannot_be_raised(mode):
    source = "import resource as r\nr.setrlimit(r.RLIMIT_NPROC, (9, 9))"
    assert "ValueError" in run_python(source, require=mode).error


@pytest.fixture
def open_folder():
    """A folder that every user of the machine may write to, so that file permissions cannot help."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def test_the_scratch_folder_can_be_written_and_nothing_else(mode, open_folder):
    kept = open_folder / "kept"
    kept.write_text("mine")
    kept.chmod(0o666)
    scratch = "import os\nopen('f', 'w').write('x')\nassert open('f').read() == 'x'\nos.mkdir('d', 0)"
    assert run_python(scratch, require=mode).error is None
    if mode == "limits" and not landlock.version():
        pytest.skip("this kernel has no Landlock: in mode limits file permissions alone protect other folders")
    for source in (
        f"open({str(open_folder / 'new')!r}, 'w')",
        f"open({str(kept)!r}, 'a')",
        f"import os\nos.remove({str(kept)!r})",
        f"import os\nos.rename({str(kept)!r}, 'stolen')",
    ):
        assert not run_python(source, require=mode).ok
    assert [path.name for path in open_folder.iterdir()] == ["kept"]
    assert kept.read_text() == "mine"


def test_there_is_no_network(mode):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        source = f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2)"
        outcome = run_python(source, require=mode)
        assert not outcome.ok and ("Error" in outcome.error)
        with pytest.raises(TimeoutError):
            server.accept()


def test_other_processes_cannot_be_signalled(mode):
    outcome = run_python(f"import os\nos.kill({os.getpid()}, 0)", require=mode)
    assert not outcome.ok


def test_output_is_cut(mode):
    outcome = run_python("while True: print('x' * 1000)", require=mode)
    assert "File too large" in outcome.error
    assert len(outcome.output) == OUTPUT_BYTES
    assert outcome.seconds < 3


def test_the_environment_is_empty(mode, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    assert "s3cret" not in run_python("import os\nprint(dict(os.environ))", require=mode).output


def test_the_host_is_out_of_sight_in_bubblewrap():
    if fault := sandbox.bubblewrap_fault():
        pytest.skip(f"bubblewrap does not work here: {fault}")
    outcome = run_python(f"open({__file__!r})", require="bubblewrap")
    assert outcome.error.startswith(("FileNotFoundError", "PermissionError"))


def test_bubblewrap_is_refused_where_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.bubblewrap_fault.cache_clear()
    try:
        with pytest.raises(SandboxError, match=r"required but does not work here: no program `bwrap`.*install"):
            run_python("pass", require="bubblewrap")
        assert run_python("pass").ok
    finally:
        sandbox.bubblewrap_fault.cache_clear()


def test_a_broken_bubblewrap_is_refused_with_its_own_words(monkeypatch, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho bwrap: No permissions to create new namespace >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    sandbox.bubblewrap_fault.cache_clear()
    try:
        with pytest.raises(SandboxError, match="No permissions to create new namespace"):
            run_python("pass", require="bubblewrap")
    finally:
        sandbox.bubblewrap_fault.cache_clear()
