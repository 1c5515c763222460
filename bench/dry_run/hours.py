"""Hours that cells take: on GPUs of known.yaml, or on one core of this project's machine."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bench.dry_run.memory import BYTES, memory_of
from bench.dry_run.sizes import Model, known

if TYPE_CHECKING:
    from bench.config.cell import Cell

FREE = 0.1
"""Share of a GPU's memory that is left for activations."""
_COUNTED: dict[tuple[str, int | None], tuple[int, int]] = {}
"""Task and n -> prompts and answers, of tasks whose rows are here."""


@dataclass(frozen=True, slots=True)
class Cost:
    """GPUs that hold the models, and hours of all of them: `own` for the method, `baseline` for plain decoding. `tau`
    is the paper's; None where it prints none."""

    gpus: int
    own: float
    baseline: float
    tau: float | None


Priced: TypeAlias = "tuple[Cell, Cost]"


def cost(cell: Cell, tau: float | None) -> Cost | None:
    """Hours if every answer has max_new_tokens and every forward only reads its weights once, the ranks of
    engine.parallel=tensor each their part of the target's; None where a model or the number of prompts is not known. A
    cycle is a forward of the target and one of the draft for each level."""
    memory, models = memory_of(cell, {}), _models(cell)
    if memory is None or models is None or (answers := answers_of(cell)) is None:
        return None
    gpu, size = known().gpu, BYTES[cell.engine.dtype]
    engine = cell.engine
    gpus = math.ceil(memory.total / (gpu.bytes * (1 - FREE))) if engine.parallel == "none" else engine.devices
    tokens = answers * cell.max_new_tokens
    passes = [size * model.read / gpu.bytes_per_s for model in models]
    passes[0] /= engine.devices if engine.parallel == "tensor" else 1
    levels = getattr(cell.drafter.options, "depth", cell.draft.length - 1) + 1
    cycle = passes[0] + levels * sum(passes[1:])
    plain = gpus * tokens * passes[0] / 3600
    own = 0.0 if cell.is_autoregressive else gpus * tokens * cycle / (tau or 1.0) / 3600
    return Cost(gpus, own, plain, tau)


def hours(costs: Sequence[tuple[Cell, Cost]]) -> float:
    """Hours of all cells; plain decoding counts once for the cells that share it."""
    shared = {shared_baseline(cell): one.baseline for cell, one in costs}
    return sum(shared.values()) + sum(one.own for _, one in costs)


def shared_baseline(cell: Cell) -> Hashable:
    """Equal for cells that share plain decoding and are timed beside it, as far as is known without the models."""
    return cell.pair.name, cell.task.name, cell.decoding, cell.n, cell.seed, cell.repeat, cell.batch


def prompts_of(cell: Cell) -> int | None:
    """How many prompts the cell decodes: no more than its file has, where that is here; None where neither is known."""
    counted = _counted(cell)
    return cell.n if counted is None else counted[0]


def _counted(cell: Cell) -> tuple[int, int] | None:
    """Prompts and answers of a cell whose rows are here."""
    task = cell.load_task()
    if task.path is None:
        return None
    key = (cell.task.model_dump_json(), cell.n)
    if key not in _COUNTED:
        prompts = task.prompts(cell.n)
        _COUNTED[key] = len(prompts), sum(len(prompt.turns) or 1 for prompt in prompts)
    return _COUNTED[key]


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds of one core: `answers` of the quality pass, which all cores share, and `clock` of the timed pass, which
    runs alone."""

    answers: float
    clock: float


def cpu_time(cells: Sequence[Cell]) -> CpuTime | None:
    """If every answer has max_new_tokens: all prompts once, plain decoding shared by the cells, and the timed ones
    again beside plain decoding. None where a pair's speed or a number of prompts is not known."""
    plain: dict[Hashable, float] = {}
    answers = clock = 0.0
    for cell in cells:
        speeds = known().cpu.get(cell.pair.name)
        if speeds is None or (count := answers_of(cell)) is None:
            return None
        tokens, method = count * cell.max_new_tokens, "plain" if cell.is_autoregressive else "drafted"
        key = cell.pair.target.source, cell.task.name, cell.decoding, cell.n, cell.seed, cell.repeat
        plain[key] = tokens / speeds.answers.plain
        answers += 0 if cell.is_autoregressive else tokens / speeds.answers.drafted
        timed = tokens * min(1.0, cell.timed_prompts / (cell.n or count))
        clock += timed / speeds.clock.plain + timed / getattr(speeds.clock, method)
    return CpuTime(answers + sum(plain.values()), clock)


def answers_of(cell: Cell) -> int | None:
    """How many answers the cell decodes: a turn each of its prompts, several samples of one counted each. None for a
    task whose rows are neither here nor known."""
    if (counted := _counted(cell)) is not None:
        return counted[1]
    options = cell.task.options.model_dump()
    data = known().data.get(cell.task.name) or known().data.get(str(options.get("hub")))
    rows = cell.n if cell.n is not None else None if data is None else data.rows
    return None if rows is None else rows * int(options.get("samples", 1))


def _models(cell: Cell) -> list[Model] | None:
    models = [known().models.get(cell.pair.checkpoint(role).source) for role in cell.roles]
    return None if None in models else [model for model in models if model is not None]
