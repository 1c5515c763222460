"""Processes that are killed, and eight that work on one store: no sample is lost, doubled or changed, and the same
command completes the cells."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from bench.config.paths import PROJECT
from tests.helpers.stores import Decoded, decoded, difference, doubled, leftovers, lines, lost

attack = pytest.mark.attack
KILLS, LIMIT_S, GONE_S = 6, 600.0, 120.0
"""Kills of a command; seconds that it, and what a kill leaves of it, may take."""
LAUNCHED = "-m method=sps task=mini_gsm,mini_chat n=3 decoding.max_new_tokens=12 timed=0 launch.parallel=2"
SAMPLED = "n=6 decoding.temperature=1 decoding.max_new_tokens=16"
RUNS = {
    "batches": f"-m method=sps,mars_sampling {SAMPLED} quality_batch=2 workers=2",
    "traced": f"method=eagle3 drafter.total=8 {SAMPLED} trace=true",
    "sandbox": "-m method=ar,pld task=mini_code n=4 decoding.max_new_tokens=160",
    "local": f"{LAUNCHED} launch=local",
    "ray": f"{LAUNCHED} launch=ray",
}
class Command:
    """A command of its own process and session."""

    def __init__(self, words: str, output: Path) -> None:
        self.log = output.with_suffix(f".{time.monotonic_ns()}.log")
        given = [sys.executable, "-m", "bench", *words.split(), "engine.threads=1", f"output.dir={output}"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(given, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=log, start_new_session=True)

    def status(self) -> int:
        """Its exit status at its end; no traceback may have been printed."""
        status = self.process.wait(LIMIT_S)
        assert "Traceback" not in self.said
        return status

    @property
    def said(self) -> str:
        return self.log.read_text(errors="backslashreplace")

    def session(self) -> list[psutil.Process]:
        """Every living process of its session, and every descendant."""
        leader, members = self.process.pid, set()
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                    members.add(process)
        with suppress(psutil.NoSuchProcess):
            members |= {process for process in psutil.Process(leader).children(recursive=True)
                        if process.status() != psutil.STATUS_ZOMBIE}
        return sorted(members, key=lambda process: process.pid)


def fault(store: Path, before: dict[Path, bytes], expected: Decoded, complete: bool) -> str:
    return (lost(before, lines(store)) or (doubled(store) or leftovers(store) if complete else "")
            or difference(decoded(store), expected, complete=complete))


def undisturbed(words: str, output: Path) -> tuple[Decoded, float]:
    """What the command decodes and how long it takes."""
    began, command = time.monotonic(), Command(words, output)
    assert command.status() == 0, command.said
    return decoded(output / "store"), time.monotonic() - began


@attack
@pytest.mark.parametrize("name", RUNS)
def test_a_command_that_is_killed_again_and_again(name: str, tmp_path: Path) -> None:
    """One of its processes, of workers or of Ray, or the command itself; now and then after the clock was set back."""
    if name == "ray" and find_spec("ray") is None:
        pytest.skip("no scheduler: ray is not installed (pip install -e .[cluster])")
    words, draw = RUNS[name], random.Random(name)
    expected, seconds = undisturbed(words, tmp_path / "undisturbed")
    for number in range(KILLS):
        output = tmp_path / f"killed-{number // 3}"
        before, command = lines(output / "store"), Command(words, output)
        with suppress(subprocess.TimeoutExpired):
            command.process.wait(draw.uniform(0, 1.1 * seconds))
        if victims := command.session():
            with suppress(psutil.NoSuchProcess):
                draw.choice(victims).kill()
        status = command.status()
        _, left = psutil.wait_procs(command.session(), GONE_S)
        assert not left, f"{len(left)} processes outlived it"
        assert not fault(output / "store", before, expected, complete=status == 0)
        if number % 3 == 1:  # its files are a day newer than the clock
            later = time.time() + 86400
            for path in output.rglob("*"):
                os.utime(path, (later, later), follow_symlinks=False)
    for output in tmp_path.glob("killed-?"):
        before, command = lines(output / "store"), Command(words, output)
        assert command.status() == 0, command.said
        assert not fault(output / "store", before, expected, complete=True)
