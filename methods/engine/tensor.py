"""A target divided among the processes that torchrun has started, by transformers' own tensor
parallelism. Rank 0 runs the command. The other ranks load the same target, each its heads and units
of every layer, and make each of its forwards with rank 0, which sends them the tokens and what has
moved in the cache since. Embedding, norms and LM head are whole on every rank, and so are logits:
drafters, heads and rules of rank 0 need not know of the others. Importing this imports nothing
heavy."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import finalize

from methods.engine.source import ModelError

if TYPE_CHECKING:
    from torch import Tensor

    class LedCache(Protocol):
        """What is sent of a `methods.engine.cache.LedCache`."""

        store: Tensor
        number: int
        moves: list[tuple[list[int], str, Any]]

        @property
        def lengths(self) -> list[int]: ...


Result = TypeVar("Result")
PATIENCE = timedelta(days=20)
"""A rank waits for the next forward: rank 0 may score, or wait for another command, for hours."""
WHOLE = "replicated_with_grad_allreduce"
"""transformers' name for a module that is the same on every rank."""

numbers = count(1)
"""Models and caches of rank 0, by which the others know theirs."""
dropped: list[int] = []
"""Numbers of those that rank 0 no longer has."""


def torchrun() -> tuple[int, int]:
    """Rank and number of the processes that torchrun, or another launcher with its variables, has
    started; 0 and 1 where none has."""
    size = int(os.environ.get("WORLD_SIZE", 1)) if "MASTER_ADDR" in os.environ else 1
    return (int(os.environ.get("RANK", 0)), size) if size > 1 else (0, 1)


class Divided:
    """A divided target, as rank 0 has it."""

    def __init__(self, load: Mapping[str, Any]):
        """Let the other ranks load it too: with `load_model` and these arguments."""
        self.number = next(numbers)
        finalize(self, dropped.append, self.number)
        _send((self.number, load))

    def forward(
        self,
        cache: LedCache,
        tokens: Tensor,
        ancestors: Tensor | None,
        depth: Tensor | None,
        work: Callable[[], Result],
    ) -> Result:
        """work(), a forward of this model's part, while the other ranks make theirs. What it raises
        ends all: they wait for what does not come."""
        rows, slots = cache.store.shape[1:3]
        _send(
            (
                self.number,
                (cache.number, rows, slots, cache.moves, cache.lengths, tokens, ancestors, depth),
            )
        )
        cache.moves = []
        try:
            return work()
        except BaseException as error:
            print(
                f"error: rank 0: {type(error).__name__}: "
                f"{next(iter(str(error).splitlines()), '')}; what is finished is stored, and the "
                "same command resumes",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)


def divide(load: Mapping[str, Any]) -> Divided | None:
    """Begin to load a model with `load_model` and these arguments on all ranks. None on another
    rank than 0."""
    return None if torchrun()[0] else Divided(load)


def plan_of(config: Any) -> dict[str, str]:
    """How transformers divides a model of this config.json: module -> its style. Raises ModelError
    where it has no plan."""
    text = config.get_text_config(decoder=True)
    if not (plan := getattr(text, "base_model_tp_plan", None)):
        raise ModelError(
            f"engine.parallel=tensor: transformers has no plan that divides a {text.model_type} "
            "model; give engine.parallel=layers"
        )
    inner = {f"model.{name}": style for name, style in plan.items() if name.startswith("layers.")}
    return inner | {"model.embed_tokens": WHOLE, "lm_head": WHOLE}


def follow(load: Callable[..., Any]) -> int:
    """What a process of another rank does all its life; `load` is `load_model`. Returns its exit
    status."""
    objects: dict[int, Any] = {}
    while (message := _shared(None)) is not None:
        gone, number, content = message
        for old in gone:
            objects.pop(old, None)
        if isinstance(content, dict):
            with suppress(ModelError):  # rank 0 meets it too, and says so
                objects[number] = load(**content)
        else:
            _follow_forward(objects, objects[number], *content)
    _part()
    return 0


def _follow_forward(
    objects: dict[int, Any],
    model: Any,
    number: int,
    rows: int,
    slots: int,
    moves: list[Any],
    lengths: list[int],
    *tensors: Any,
) -> None:
    """As `Divided.forward`, of another rank."""
    from methods.engine.graphs import mapped

    if number not in objects:
        objects[number] = model.new_cache(rows, slots)
    cache = objects[number]
    moves, tokens, ancestors, depth = mapped(
        [moves, *tensors], lambda tensor: tensor.to(model.device)
    )
    for before, move, argument in moves:
        cache.set_lengths(before)
        getattr(cache, move)(argument)
    cache.set_lengths(lengths)
    model.forward(tokens, cache, ancestors=ancestors, depth=depth, keep=1)


@cache
def _meet() -> None:
    """Wait until all ranks are there. Rank 0 lets them go when it ends."""
    import torch
    import torch.distributed as dist

    place = int(os.environ.get("LOCAL_RANK", 0))
    if place < torch.cuda.device_count():
        torch.cuda.set_device(place)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE
    )


def dismiss_at_exit() -> None:
    """Let the other ranks end when this process does."""
    atexit.unregister(_dismiss)
    atexit.register(_dismiss)


def _dismiss() -> None:
    _send(None)
    _part()


def _part() -> None:
    """Leave the group. Where a process ends without, torch 2.13 now and then aborts it: its threads
    outlive the interpreter."""
    import torch.distributed as dist

    dist.destroy_process_group()


def _send(message: Any) -> None:
    from methods.engine.graphs import mapped

    gone = [dropped.pop() for _ in range(len(dropped))]
    _shared(None if message is None else (gone, *mapped(message, lambda tensor: tensor.cpu())))


def _shared(message: Any) -> Any:
    """Rank 0's message, which the others wait for."""
    import torch
    import torch.distributed as dist

    _meet()
    box = [message]
    dist.broadcast_object_list(box, 0, device=torch.device("cpu"))
    return box[0]
