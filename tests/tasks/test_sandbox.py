"""The sandbox, with real processes: each misdeed ends as a failed program and leaves nothing
behind."""

import ctypes
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.sandbox.run import SandboxError, SandboxJob, run_job
from tests.helpers.ci import needs_bubblewrap
from tests.tasks.conftest import CASES

ISOLATED = [
    pytest.param(True, marks=needs_bubblewrap, id="isolated"),
    pytest.param(False, id="limits alone"),
]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the sandbox is made of Linux system calls"
)
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def alive():
    """The living children of this process, to which whatever a run leaves is handed."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield lambda: [child for child in _children(os.getpid()) if _state(child) != "Z"]
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _children(process):
    return [
        int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def _state(process):
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("isolated", ISOLATED)
@pytest.mark.parametrize(
    ("source", "error"),
    CASES["ends"],
)
def test_how_a_program_ends(isolated, source, error):
    assert (
        run_job(
            SandboxJob(source), timeout_s=1.0 if "while" in source else 600.0, isolated=isolated
        )
        == error
    )


@needs_bubblewrap
def test_the_environment_is_out_of_sight(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    assert (
        run_job(
            SandboxJob(
                "import os\nassert 's3cret' not in str(os.environ) and not os.path.exists('/proc')"
            )
        )
        is None
    )


@pytest.mark.parametrize("isolated", ISOLATED)
def test_no_process_outlives_its_run(alive, isolated):
    before = alive()
    stays = "import os, signal\nos.close(0)\nsignal.signal(15, signal.SIG_IGN)\nwhile True: pass"
    assert run_job(SandboxJob(stays), timeout_s=0.5, isolated=isolated) == "no end after 0.5 s"
    assert alive() == before


@needs_bubblewrap
def test_a_program_dies_with_the_harness():
    """The harness is killed while a program runs that has left its process group."""
    code = (
        "from tasks.sandbox import run\ntold, n = run._told, []\ndef _told(*given):\n    "
        "n.append(1)\n    if len(n) == 2: print('runs', flush=True)\n    return told(*given)\n"
        "run._told = _told\nrun._run(run.SandboxJob('import os\\nos.setsid()\\nwhile True: pass'), "
        "60.0, 512, True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as harness:
        assert harness.stdout.readline() == "runs\n"
        left = [os.pidfd_open(process) for process in _descendants(harness.pid)]
        harness.kill()
    assert len(left) == 6, "two bubblewraps, each with its first process and Python"
    for process in left:
        select.select([process], [], [])  # until it has ended
        os.close(process)


def _descendants(process):
    return [one for child in _children(process) for one in (child, *_descendants(child))]


NO_RIGHTS = "bwrap: No permissions to create new namespace"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "there is no `bwrap` on the PATH; install"),
        (f"#!/bin/sh\necho '{NO_RIGHTS}' >&2\nexit 1\n", f"{NO_RIGHTS}$"),
    ],
)
def test_there_is_no_score_without_bubblewrap(path, tmp_path, script, said):
    """There is none, or one that has no rights."""
    if script:
        (tmp_path / "bwrap").write_text(script)
        (tmp_path / "bwrap").chmod(0o755)
    path(str(tmp_path))
    with pytest.raises(SandboxError, match=f"^programs cannot be run: {said}"):
        run_job(SandboxJob("pass"))
    assert run_job(SandboxJob("pass"), isolated=False) is None
