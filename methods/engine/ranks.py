"""The processes of a team: started by torchrun, with the command's own line, or else by rank 0. When one of them ends
before the command does, all end."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from methods.engine.team import Team

if TYPE_CHECKING:
    from torch.distributed import TCPStore

PROJECT = Path(__file__).resolve().parents[2]
PORT = "LEEWAY_TEAM_PORT"
"""Variable of the processes that rank 0 starts: where it listens."""
FOLLOW = "from methods.engine.ranks import follow; raise SystemExit(follow())"
PATIENCE = timedelta(days=20)
"""A rank waits for the next step: rank 0 may score, or wait for another command, for hours."""

_TEAM: list[Team] = []
"""The one team that this process is part of, if it is."""


def torchrun() -> tuple[int, int]:
    """Rank and number of the processes that torchrun, or another launcher with its variables, has started; 0 and 1
    where none has."""
    size = int(os.environ.get("WORLD_SIZE", 1)) if "MASTER_ADDR" in os.environ else 1
    return (int(os.environ.get("RANK", 0)), size) if size > 1 else (0, 1)


def on_this_host(size: int) -> int:
    """How many of the `size` ranks run on this host: all, unless torchrun has started them on several."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", size)) if torchrun()[1] > 1 else size


def team_of(size: int) -> Team:
    """The team of `size` ranks that this process is part of. Rank 0 forms it on first use, and starts the others where
    torchrun has not. Raises ValueError where it has another size."""
    if not _TEAM:
        _TEAM.append(_start(size) if torchrun()[1] == 1 else _join(*torchrun()))
        dismiss_at_exit()
    if _TEAM[0].size != size:
        raise ValueError(f"engine.devices={size}: this command already decodes on {_TEAM[0].size} devices; run this "
                         "setting as a separate command")
    return _TEAM[0]


def dismiss_at_exit() -> None:
    """Let the other ranks end when this process does; once, however often it is said."""
    atexit.unregister(dismiss)
    atexit.register(dismiss)


def dismiss() -> None:
    """Let the other ranks end, those that wait for a command of torchrun's too."""
    if (size := torchrun()[1]) > 1:
        team_of(size)
    if _TEAM:
        _TEAM.pop().dismiss()


def follow() -> int:
    """What a process of another rank does all its life. Returns its exit status."""
    rank, size = torchrun()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 ends its command, and so the others
    os.chdir(PROJECT)
    if PORT in os.environ:
        threading.Thread(target=_end_with_rank_0, daemon=True).start()
    try:
        _TEAM.append(_join(rank, size))
        _TEAM[0].follow()
    except Exception as error:
        if "onnection" not in str(error):  # rank 0 has ended, and has said why
            print(f"rank {rank}: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}", file=sys.stderr,
                  flush=True)
        os._exit(1)
    return 0


def _end_with_rank_0() -> None:
    os.read(0, 1)  # its end of the pipe is closed
    os._exit(1)


def _start(size: int) -> Team:
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False, timeout=PATIENCE)
    place = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(size), PORT: str(store.port)}
    members = [subprocess.Popen([sys.executable, "-c", FOLLOW], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                cwd=PROJECT,
                                env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)})
               for rank in range(1, size)]
    team = Team(0, size, members)
    for number, member in enumerate(members, start=1):
        threading.Thread(target=team.watch, args=(number, member), daemon=True).start()
    _meet(0, size, store)
    return team


def _join(rank: int, size: int) -> Team:
    from torch.distributed import TCPStore

    port = os.environ.get(PORT)
    _meet(rank, size, None if port is None else TCPStore("127.0.0.1", int(port), size, timeout=PATIENCE))
    return Team(rank, size)


def _meet(rank: int, size: int, store: TCPStore | None) -> None:
    """Wait until all ranks are there. Without `store` they meet where torchrun's variables say."""
    import torch
    import torch.distributed as dist

    place = int(os.environ.get("LOCAL_RANK", 0))
    if place < torch.cuda.device_count():
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
