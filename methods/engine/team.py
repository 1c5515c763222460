"""Processes that decode together, each on its part of the target. Importing this imports nothing heavy.

Rank 0 runs the command. A call of a function marked `together` is sent to the other ranks, which only follow: all make
it at once, each on its own part, and exchange what they lack inside of it. So every rank runs the same decode loop;
rank 0 alone reads the store, writes and prints. `methods/engine/ranks.py` starts and ends the processes."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from methods.engine.source import ModelError

if TYPE_CHECKING:
    from torch import Tensor

Given = ParamSpec("Given")
Result = TypeVar("Result")
GRACE_S = 5.0
"""Seconds in which the end of a rank becomes known to the process that started it."""


class Team:
    """The ranks of one target, seen by one of them.

    rank, size  its own number and that of all.
    members     the processes of the other ranks, where this one has started them.
    """

    def __init__(self, rank: int, size: int, members: Sequence[subprocess.Popen[bytes]] = ()) -> None:
        self.rank, self.size, self.members = rank, size, members
        self.inside = False
        self._exchanged = False
        self._kept: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # of rank 0
        self._followed: dict[int, Any] = {}  # of the others, by rank 0's numbers
        self._dropped: list[int] = []
        self._last = 0
        self._dismissed = False
        self._speaking = threading.Lock()

    # --- exchanges: what all ranks do at once, inside a call

    def sum(self, part: Tensor) -> Tensor:
        """The sum of all ranks' `part`, in its place."""
        import torch.distributed as dist

        self._exchange()
        dist.all_reduce(part)
        return part

    def gather(self, part: Tensor) -> Tensor:
        """[..., n] of every rank -> [..., size * n], side by side in the order of ranks."""
        import torch
        import torch.distributed as dist

        self._exchange()
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, -1)

    def agree(self, value: Result) -> Result:
        """A value with the integers and truth values of rank 0 in the place of each rank's own: one broadcast."""
        import torch
        import torch.distributed as dist

        from methods.engine.graphs import mapped

        self._exchange()
        exact: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                exact.append(tensor)
            return tensor

        mapped(value, note)
        packed = torch.cat([tensor.long().flatten() for tensor in exact])
        dist.broadcast(packed, 0)
        if self.rank == 0:
            return value
        parts = iter(packed.split([tensor.numel() for tensor in exact]))
        agreed: Result = mapped(value, lambda tensor: tensor if tensor.is_floating_point()
                                else next(parts).view(tensor.shape).to(tensor.dtype))
        return agreed

    def _exchange(self) -> None:
        if not self.inside:
            raise ModelError("engine.parallel=tensor: this command decodes in one process; give engine.parallel=none "
                             "engine.devices=1, or engine.parallel=layers")
        self._exchanged = True

    # --- rank 0

    def call(self, function: Callable[..., Any], *arguments: Any, work: Callable[[], Result]) -> Result:
        """`work()` here, while the others call function(*arguments). What it raises before the ranks exchange anything
        is raised by all of them; after that it ends them all."""
        return self._call(None, function, arguments, work)

    def keep(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """function(*arguments) on every rank. Its result, and the `target` of that, may be an argument of later calls,
        in which each rank has its own."""
        self._last += 1
        self._kept[self._last] = result = self._call(self._last, function, arguments, partial(function, *arguments))
        weakref.finalize(result, self._dropped.append, self._last)
        return result

    def _call(self, number: int | None, function: Callable[..., Any], arguments: tuple[Any, ...],
              work: Callable[[], Result]) -> Result:
        import torch

        dropped, self._dropped[:] = list(self._dropped), []
        self.inside, self._exchanged = True, False
        try:
            self._send((function, arguments, number, dropped, torch.get_num_threads()))
            return work()
        except Exception as error:
            if not self._exchanged and not isinstance(error, RuntimeError):
                raise
            self.end(f"rank 0: {type(error).__name__}: {_first_line(error)}")
        except BaseException:  # interrupted: the others wait for a step that does not come
            self._stop()
            raise
        finally:
            self.inside = False

    def _send(self, message: Any) -> None:
        import torch
        import torch.distributed as dist

        file = io.BytesIO()
        pickler = pickle.Pickler(file)
        pickler.persistent_id = self._name  # type: ignore[method-assign]
        pickler.dump(message)
        dist.broadcast_object_list([file.getvalue()], 0, device=torch.device("cpu"))

    def _name(self, value: Any) -> tuple[int, bool] | None:
        """What the others know a value by: the number of what was kept, and whether it is its target."""
        if getattr(value, "team", None) is not self:
            return None
        return next((number, known is not value) for number, known in self._kept.items()
                    if value is known or value is known.target)

    def watch(self, number: int, member: subprocess.Popen[bytes]) -> None:
        """Wait until the process of another rank ends. Unless it was dismissed, all end."""
        member.wait()
        if not self._dismissed:
            self.end(f"rank {number} has ended")

    def end(self, reason: str) -> NoReturn:
        """Say in one line why the command cannot go on, and end it at once: the main thread may wait for a rank that
        is gone, in a library that no exception reaches."""
        self._speaking.acquire()  # never released: one line is enough
        for number, member in enumerate(self.members, start=1):
            with suppress(subprocess.TimeoutExpired):
                if status := member.wait(GRACE_S / len(self.members)):
                    reason = f"rank {number}: " + (f"killed by signal {-status}" if status < 0 else f"status {status}")
                    break
        self._stop()
        print(f"error: engine.devices={self.size}: {reason}; what is finished is stored, and the same command resumes",
              file=sys.stderr, flush=True)
        os._exit(1)

    def _stop(self) -> None:
        self._dismissed = True
        for member in self.members:
            member.kill()

    def dismiss(self) -> None:
        """Let the other ranks end."""
        import torch.distributed as dist

        if not self._dismissed:
            self._dismissed = True
            self._send(None)
            for member in self.members:
                member.wait()
            dist.destroy_process_group()

    # --- the other ranks

    def follow(self) -> None:
        """Make the calls that rank 0 sends, until it dismisses this rank."""
        import torch
        import torch.distributed as dist

        while True:
            box: list[Any] = [None]
            dist.broadcast_object_list(box, 0, device=torch.device("cpu"))
            unpickler = pickle.Unpickler(io.BytesIO(box[0]))
            unpickler.persistent_load = self._named  # type: ignore[method-assign]
            if (message := unpickler.load()) is None:
                return
            function, arguments, number, dropped, threads = message
            for old in dropped:
                self._followed.pop(old, None)
            torch.set_num_threads(threads)
            self.inside, self._exchanged = True, False
            try:
                result = function(*arguments)
                if number is not None:
                    self._followed[number] = result
                del result
            except Exception as error:
                if self._exchanged or isinstance(error, RuntimeError):
                    raise
            del message, arguments, unpickler

    def _named(self, name: tuple[int, bool]) -> Any:
        number, target = name
        return self._followed[number].target if target else self._followed[number]


def together(count: int) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """A function that all ranks of a team call at once. Its first argument has a `team`, or None there; the first
    `count` arguments are sent, the others, which only watch, stay with rank 0."""
    def mark(function: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(function)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            owner: Any = args[0]
            team: Team | None = owner.team
            if team is None or team.inside:
                return function(*args, **kwargs)
            return team.call(run, *args[:count], work=partial(function, *args, **kwargs))

        return run

    return mark


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
