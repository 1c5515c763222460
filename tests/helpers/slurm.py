"""Slurm's own daemons on this machine, for as long as a test needs them: one node, one partition, nothing in /etc."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.helpers.ports import reserved_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPort={ctld}
SlurmdPort={slurmd}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_interval=1,bf_interval=1
PriorityType=priority/basic
ReturnToService=2
KillWait=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
START_S = 60.0


def missing() -> str:
    """Why no Slurm can be started here; empty where it can."""
    if absent := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"no scheduler: {', '.join(absent)} not installed (make slurm)"
    return "" if os.geteuid() == 0 else "no scheduler: Slurm's daemons are started by root"


@contextmanager
def slurm() -> Iterator[None]:
    """Start Slurm with its files in a temporary folder, wait until its node is idle, and stop it at the end. SLURM_CONF
    tells the commands of this process."""
    daemons: list[subprocess.Popen[bytes]] = []
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)  # the user munge has a folder in it
    before = os.environ.get("SLURM_CONF")
    ports = ExitStack()
    os.environ["SLURM_CONF"] = str(_configure(folder, [ports.enter_context(reserved_port()) for _ in range(2)]))
    try:
        daemons.append(_munged(folder / "munge"))
        daemons += [subprocess.Popen([name, "-D"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    for name in ("slurmctld", "slurmd")]
        _await_idle()
        yield
    finally:
        with suppress(OSError):
            subprocess.run(["scancel", "--full", "--signal=KILL", f"--user={pwd.getpwuid(0).pw_name}"], timeout=20,
                           check=False)
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            daemon.kill()
        ports.close()
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before
        shutil.rmtree(folder)


def _configure(folder: Path, ports: Sequence[int]) -> Path:
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(parents=True)
    file = folder / "slurm.conf"
    file.write_text(CONFIGURATION.format(host=socket.gethostname(), folder=folder, ctld=ports[0], slurmd=ports[1]))
    return file


def _munged(folder: Path) -> subprocess.Popen[bytes]:
    """The daemon that signs messages between those of Slurm, as its own user."""
    (folder / "key").write_bytes(secrets.token_bytes(128))
    (folder / "key").chmod(0o400)
    user = pwd.getpwnam("munge")
    for path in (folder, folder / "key"):
        os.chown(path, user.pw_uid, user.pw_gid)
    folder.chmod(0o755)
    files = [f"--{option}={folder / name}" for option, name in
             (("socket", "socket"), ("key-file", "key"), ("pid-file", "pid"), ("seed-file", "seed"))]
    return subprocess.Popen(["munged", "--foreground", *files], user=user.pw_uid, group=user.pw_gid,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _await_idle() -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        said = subprocess.run(["sinfo", "--noheader", "--format=%t"], capture_output=True, text=True, check=False)
        if said.stdout.strip() == "idle":
            return
        time.sleep(0.5)
    raise RuntimeError(f"Slurm's node is not idle after {START_S:g} s: {said.stdout} {said.stderr}")
