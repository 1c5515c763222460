"""Memory and hours that cells take, from the sizes of models and data sets that known.yaml lists."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel

from bench.config.paths import portable
from methods.engine.source import ModelError, read_json
from results.store.errors import one_line

if TYPE_CHECKING:
    from bench.config.cell import Cell

PROMPT = 1024
"""Tokens assumed for the longest prompt."""
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


class Model(BaseModel):
    """Parameters; those that a token reads (None: all); keys and values that the cache holds for a token (None: not
    known). Whether the hub gives it only to who was granted access."""

    parameters: int
    kv: int | None
    active: int | None = None
    gated: bool = False


class Known(BaseModel):
    """known.yaml. `gpu`: name and bytes_per_s; `cpu`: pair -> pass -> plain or drafted -> tokens per second of one
    core; `data`: bytes that a task downloads, and rows of the split that it reads, where they are known."""

    gpu: dict[str, Any]
    cpu: dict[str, dict[str, dict[str, float]]]
    models: dict[str, Model]
    data: dict[str, dict[str, float]]


@cache
def known() -> Known:
    return Known.model_validate(yaml.safe_load((Path(__file__).parent / "known.yaml").read_text(encoding="utf-8")))


def known_model(source: str) -> Model | None:
    return known().models.get(portable(source))


@dataclass(frozen=True, slots=True)
class Memory:
    """Role -> bytes of its weights, and of a cache of `rows` rows of `slots` tokens, `nodes` of them a draft's; None
    where they are not known. What a forward holds for a moment comes on top."""

    parts: dict[str, tuple[int | None, int | None]]
    rows: int
    slots: int
    nodes: int

    @property
    def total(self) -> int:
        return sum(size or 0 for part in self.parts.values() for size in part)

    @property
    def is_whole(self) -> bool:
        return all(None not in part for part in self.parts.values())


def memory_of(cell: Cell, quality_batch: int, folders: Mapping[str, Path]) -> Memory:
    """Weights and cache of the cell's models at its largest batch. `folders`: role -> a folder with the model's
    config.json, of models that known.yaml does not list. Raises ModelError."""
    rows = max(cell.batch, min(quality_batch, prompts_of(cell) or quality_batch))
    nodes, size = cell.drafter.options.nodes(cell.draft.length), BYTES[cell.engine.dtype]
    slots = PROMPT + cell.max_new_tokens + nodes + 1
    layers = read_json(folders["target"] / "config.json").get("num_hidden_layers") if folders else None
    if layers is not None:
        cell.drafter.options.check_target(SimpleNamespace(source=cell.pair.target.source, layers=layers))
    parts: dict[str, tuple[int | None, int | None]] = {}
    for role in cell.roles:
        model = known_model(cell.pair.checkpoint(role).source) or (model_in(folders[role]) if folders else None)
        parts[role] = (None, None) if model is None else (
            size * model.parameters, None if model.kv is None else size * model.kv * slots * rows)
    return Memory(parts, rows, slots, nodes)


@cache
def model_in(folder: Path) -> Model | None:
    """What the headers of a folder's safetensors files and its config.json tell; None where a file is missing. Raises
    ModelError for a file that is not safetensors."""
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, list[int]] = {}
    for file in folder.glob("*.safetensors"):
        try:
            with safe_open(file, "np") as opened:
                shapes |= {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{file}: not safetensors: {one_line(error)}") from error
    index, config = folder / "model.safetensors.index.json", read_json(folder / "config.json")
    if not shapes or (index.is_file() and read_json(index)["weight_map"].keys() - shapes):
        return None
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    width = config.get("head_dim") or (hidden // heads if heads and hidden else None)
    groups = config.get("num_key_value_heads") or heads
    layers = config.get("num_hidden_layers")
    kv = 2 * layers * groups * width if width and groups and layers else None
    return Model(parameters=sum(map(math.prod, shapes.values())), kv=kv)


def prompts_of(cell: Cell) -> int | None:
    """How many prompts the cell decodes: no more than its file has, where that is here; None where neither is known."""
    counted = _counted(cell)
    return cell.n if counted is None else counted[0]


def answers_of(cell: Cell) -> int | None:
    """How many answers the cell decodes: a turn each of its prompts, several samples of one counted each. None for a
    task whose rows are neither here nor known."""
    if (counted := _counted(cell)) is not None:
        return counted[1]
    options = cell.task.options.model_dump()
    data = known().data.get(cell.task.name) or known().data.get(str(options.get("hub"))) or {}
    rows = cell.n if cell.n is not None else data.get("rows")
    return None if rows is None else int(rows) * int(options.get("samples", 1))


_COUNTED: dict[tuple[str, int | None], tuple[int, int]] = {}
"""Task and n -> prompts and answers, of tasks whose rows are here."""


def _counted(cell: Cell) -> tuple[int, int] | None:
    task = cell.load_task()
    if task.path is None:
        return None
    key = (cell.task.model_dump_json(), cell.n)
    if key not in _COUNTED:
        prompts = task.prompts(cell.n)
        _COUNTED[key] = len(prompts), sum(len(prompt.turns) or 1 for prompt in prompts)
    return _COUNTED[key]


def shared_baseline(cell: Cell) -> Hashable:
    """Equal for cells that share plain decoding, as far as is known without the models."""
    return cell.pair.target.source, cell.task.name, cell.decoding, cell.n, cell.seed, cell.repeat


def gpu_hours(points: Iterable[tuple[Cell, float | None]]) -> float | None:
    """Hours of all GPUs for cells with the papers' τ (None: 1), if every answer has max_new_tokens and every forward
    only reads its weights once. Plain decoding counts once for the cells that share it; a cycle is a forward of the
    target and one of the draft for each level. None where a model or a number of prompts is not known."""
    plain: dict[Hashable, float] = {}
    own = 0.0
    for cell, tau in points:
        models = [known_model(cell.pair.checkpoint(role).source) for role in cell.roles]
        answers = answers_of(cell)
        if None in models or answers is None:
            return None
        target, *drafts = [BYTES[cell.engine.dtype] * (model.active or model.parameters) / known().gpu["bytes_per_s"]
                           for model in models if model is not None]
        devices = cell.engine.devices
        target /= devices if cell.engine.parallel == "tensor" else 1
        levels = getattr(cell.drafter.options, "depth", cell.draft.length - 1) + 1
        hours = devices * answers * cell.max_new_tokens / 3600
        plain[shared_baseline(cell)] = hours * target
        own += 0 if cell.is_autoregressive else hours * (target + levels * sum(drafts)) / (tau or 1.0)
    return sum(plain.values()) + own if plain else None


def cpu_time(cells: Sequence[Cell]) -> tuple[float, float] | None:
    """Seconds of one core if every answer has max_new_tokens: of the quality pass, which all cores share, plain
    decoding once for the cells that share it; and of the timed pass, which runs alone, each cell beside plain decoding.
    None where a pair's speed or a number of prompts is not known."""
    plain: dict[Hashable, float] = {}
    answers = clock = 0.0
    for cell in cells:
        speeds = known().cpu.get(cell.pair.name)
        if speeds is None or (count := answers_of(cell)) is None:
            return None
        tokens, method = count * cell.max_new_tokens, "plain" if cell.is_autoregressive else "drafted"
        plain[shared_baseline(cell)] = tokens / speeds["answers"]["plain"]
        answers += 0 if cell.is_autoregressive else tokens / speeds["answers"]["drafted"]
        timed = tokens * min(1.0, cell.timed_prompts / (cell.n or count))
        clock += timed / speeds["clock"]["plain"] + timed / speeds["clock"][method]
    return answers + sum(plain.values()), clock
