"""Whether models and caches fit the GPUs of a machine: `machine=8x80`, or those that are here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from rich.filesize import decimal as size

from bench.config.errors import ConfigError
from bench.dry_run.estimate import MemoryNeed, memory_of
from methods.engine.source import ModelError, ModelSource

if TYPE_CHECKING:
    from bench.config.cell import Cell

ROOM = 0.95
"""Share of a GPU's memory for weights and caches; a forward holds the rest for a moment."""


class Machine(NamedTuple):
    """`gpus` GPUs of `bytes` each, and how a reader knows them."""

    gpus: int
    bytes: float
    name: str

    @classmethod
    def of(cls, text: str) -> Machine:
        """`8x80`: eight GPUs of 80 GB each."""
        gpus, _, gb = text.partition("x")
        return cls(int(gpus), float(gb) * 1e9, f"machine={text}")

    @classmethod
    def here(cls, cells: Iterable[Cell]) -> Machine | None:
        """The GPUs of this machine, as large as the smallest; None where no cell uses one."""
        if not any(cell.engine.device.startswith("cuda") for cell in cells):
            return None
        import torch

        sizes = [
            torch.cuda.get_device_properties(index).total_memory
            for index in range(torch.cuda.device_count())
        ]
        if not sizes:
            return None
        return cls(len(sizes), min(sizes), f"this machine, {len(sizes)} GPUs of {size(min(sizes))}")


def machine_of(text: str | None, cells: Iterable[Cell]) -> Machine | None:
    """The machine that `machine=` describes, else this one; None where its GPUs are not known."""
    return Machine.here(cells) if text is None else Machine.of(text)


def on_fullest(need: MemoryNeed, cell: Cell, devices: int | None = None) -> float:
    """Bytes on the fullest of the cell's GPUs, at least: its part of the target, and all of what
    drafts for it. `devices`: another number of GPUs than the cell's."""
    engine = cell.engine
    number = engine.devices if devices is None else devices
    weights, cache = need.parts["target"]
    whole = need.whole if engine.parallel == "tensor" and number > 1 else 0
    part = whole + ((weights or 0) - whole + (cache or 0)) / number
    others = [
        bytes_ or 0 for role, pair in need.parts.items() if role != "target" for bytes_ in pair
    ]
    return part + sum(others)


def misfit(cell: Cell, need: MemoryNeed, machine: Machine) -> str:
    """Why the cell cannot run on the machine even with its smallest batch, and what can; empty
    where it can. `need` is that of the smallest batch."""
    engine, room = cell.engine, ROOM * machine.bytes
    numbers = [number for number in (1, 2, 4, 8, 16, 32, 64) if number <= machine.gpus]
    enough = [number for number in numbers if on_fullest(need, cell, number) <= room]
    instead = "no number of its GPUs holds it"
    if enough:
        few = enough[0]
        mode = "none" if few == 1 else engine.parallel if engine.parallel != "none" else "layers"
        instead = f"give engine.parallel={mode} engine.devices={few}"
    if engine.devices > machine.gpus:
        return f"engine.devices={engine.devices}, and {machine.name} has {machine.gpus}; {instead}"
    part = on_fullest(need, cell)
    if part <= room:
        return ""
    prompts = f"{need.rows} prompt{'s' * (need.rows > 1)}"
    return (
        f"weights and the cache of {prompts} take {size(int(part))} on one GPU, and "
        f"{machine.name} has {size(int(machine.bytes))}; {instead}"
    )


def most_rows(cell: Cell, need: MemoryNeed, machine: Machine) -> int:
    """How many prompts fit together, at most the rows of `need`."""
    at_one = on_fullest(need.with_rows(1), cell)
    each = on_fullest(need.with_rows(2), cell) - at_one
    if not each:
        return need.rows
    return min(need.rows, 1 + int((ROOM * machine.bytes - at_one) / each))


def fault_on(cell: Cell, machine: Machine) -> str:
    """Why a GPU's part of the cell does not fit the machine; empty where it does, and for models of
    which nothing is known here."""
    folders = {
        role: ModelSource.of(checkpoint.source).folder
        for role, checkpoint in cell.checkpoints.items()
    }
    here = all((folder / "config.json").is_file() for folder in folders.values())
    try:
        need = memory_of(cell, 1, folders if here else {})
    except ModelError:  # whoever loads the model says it
        return ""
    fault = misfit(cell, need, machine)
    return fault and f"pair={cell.pair.name} {cell.label}: {fault}"


def check_fit(cells: Iterable[Cell], text: str | None) -> None:
    """Raises ConfigError for a cell of which a GPU's part does not fit the machine."""
    cells = list(cells)
    machine = machine_of(text, cells)
    if machine is None:
        return
    for cell in cells:
        if fault := fault_on(cell, machine):
            raise ConfigError(fault)
