"""Memory and time that cells take: sizes of models and data sets from known.yaml, lengths of
answers from the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from pydantic import BaseModel

from bench.config.paths import portable
from methods.engine.source import ModelError, read_json
from results.store.errors import one_line
from results.store.sample import Sample

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.store.cells import Store

PROMPT = 1024
"""Tokens assumed for the longest prompt."""
DRAWN = 16
"""Prompts whose laws are averaged over draws."""
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


class Model(BaseModel):
    """Parameters; those that a token reads (None: all); keys and values that the cache holds for a
    token (None: not known). Whether the hub gives it only to who was granted access."""

    parameters: int
    kv: int | None
    active: int | None = None
    gated: bool = False


class Known(BaseModel):
    """known.yaml. `gpu`: name and bytes_per_s; `cpu`: pair -> pass -> plain or drafted -> tokens
    per second of one core, `times` -> what multiplies the time of answers, `start` -> seconds that
    a cell takes to warm up, and tokens in whose time an answer begins; `data`: bytes that a task
    downloads, and rows of the split that it reads, where they are known; `lengths`: task -> tokens
    of an answer, and whose mean that is."""

    gpu: dict[str, Any]
    cpu: dict[str, dict[str, dict[str, float]]]
    models: dict[str, Model]
    data: dict[str, dict[str, float]]
    lengths: dict[str, tuple[int, str]]


@cache
def known() -> Known:
    return Known.model_validate(
        yaml.safe_load((Path(__file__).parent / "known.yaml").read_text(encoding="utf-8"))
    )


def known_model(source: str) -> Model | None:
    return known().models.get(portable(source))


@dataclass(frozen=True, slots=True)
class Memory:
    """Role -> bytes of its weights, and of a cache of `rows` rows of `slots` tokens, `nodes` of
    them a draft's; None where they are not known. What a forward holds for a moment comes on
    top."""

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
    """Weights and cache of the cell's models at its largest batch. `folders`: role -> a folder with
    the model's config.json, of models that known.yaml does not list. Raises ModelError."""
    rows = max(cell.batch, min(quality_batch, counted(cell)[0] or quality_batch))
    nodes, size = cell.drafter.options.nodes(cell.draft.length), BYTES[cell.engine.dtype]
    slots = PROMPT + cell.max_new_tokens + nodes + 1
    layers = (
        read_json(folders["target"] / "config.json").get("num_hidden_layers") if folders else None
    )
    if layers is not None:
        cell.drafter.options.check_target(
            SimpleNamespace(source=cell.pair.target.source, layers=layers)
        )
    parts: dict[str, tuple[int | None, int | None]] = {}
    for role in cell.roles:
        model = known_model(cell.pair.checkpoint(role).source) or (
            model_in(folders[role]) if folders else None
        )
        parts[role] = (
            (None, None)
            if model is None
            else (
                size * model.parameters,
                None if model.kv is None else size * model.kv * slots * rows,
            )
        )
    return Memory(parts, rows, slots, nodes)


@cache
def model_in(folder: Path) -> Model | None:
    """What the headers of a folder's safetensors files and its config.json tell; None where a file
    is missing. Raises ModelError for a file that is not safetensors."""
    from huggingface_hub import get_local_safetensors_metadata
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    try:
        found = get_local_safetensors_metadata(folder)
    except (NotASafetensorsRepoError, FileNotFoundError):
        return None
    except (OSError, ValueError, SafetensorsParsingError) as error:
        raise ModelError(f"{folder}: not safetensors: {one_line(error)}") from error
    config = read_json(folder / "config.json")
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    width = config.get("head_dim") or (hidden // heads if heads and hidden else None)
    groups = config.get("num_key_value_heads") or heads
    layers = config.get("num_hidden_layers")
    kv = 2 * layers * groups * width if width and groups and layers else None
    return Model(parameters=sum(found.parameter_count.values()), kv=kv)


_COUNTED: dict[tuple[str, int | None], tuple[int | None, int | None]] = {}


def counted(cell: Cell) -> tuple[int | None, int | None]:
    """Prompts and answers that the cell decodes: a turn is an answer, and so is each of several
    samples. None for a task whose rows are neither here nor known."""
    key = (cell.task.model_dump_json(), cell.n)
    if key not in _COUNTED:
        task, options = cell.load_task(), cell.task.options.model_dump()
        if task.path is not None:
            prompts = task.prompts(cell.n)
            _COUNTED[key] = len(prompts), sum(len(prompt.turns) or 1 for prompt in prompts)
        else:
            data = (
                known().data.get(cell.task.name) or known().data.get(str(options.get("hub"))) or {}
            )
            rows = [number for number in (cell.n, data.get("rows")) if number is not None]
            count = int(min(rows)) * int(options.get("samples", 1)) if rows else None
            _COUNTED[key] = count, count
    return _COUNTED[key]


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens an answer is taken to have. `found`: task -> tokens, and whose mean that
    is."""

    store: Store
    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def of(self, cell: Cell) -> tuple[int, str]:
        """The mean of plain answers to the task in the store, of any pair, else that of known.yaml;
        no more than the cell's limit, which is taken where neither is there."""
        task = cell.task.name
        if task not in self.found:
            self.found[task] = self._stored(task) or self._known(task) or (0, "max_new_tokens")
        tokens, whose = self.found[task]
        return min(tokens or cell.max_new_tokens, cell.max_new_tokens), whose

    def _stored(self, task: str) -> tuple[int, str] | None:
        """Of a cell of eight answers at least, most of which ended by themselves."""
        for folder in self.store.folders():
            if f"-ar-{task}-" in folder.name:
                samples = self.store.cell(folder.name).samples()
                tokens = [
                    len(sample.output_ids) for sample in samples if isinstance(sample, Sample)
                ]
                if (
                    len(tokens) >= 8
                    and sum(count == max(tokens) for count in tokens) < len(tokens) / 2
                ):
                    return round(
                        sum(tokens) / len(tokens)
                    ), f"{folder.name.partition('-ar-')[0]}'s stored answers"
        return None

    @staticmethod
    def _known(task: str) -> tuple[int, str] | None:
        """By the longest name that the task's begins with: gsm8k_eagle has the solutions of
        gsm8k."""
        names = [name for name in known().lengths if task == name or task.startswith(f"{name}_")]
        return known().lengths[max(names, key=len)] if names else None


class Point(NamedTuple):
    """A cell to measure.

    tau       the paper's; None where it prints none: 1.
    traced    whether its answers are traced.
    answered  how many of its prompts have an answer in the store.
    label     of its point; empty for a cell that others are compared with.
    awaits    the command that makes a file which the cell stands without; empty for most.
    """

    cell: Cell
    tau: float | None = None
    traced: bool = False
    answered: int = 0
    label: str = ""
    awaits: str = ""


def per_token(
    cell: Cell, tau: float | None, rows: int
) -> tuple[str, dict[str, dict[str, float]]] | None:
    """core or GPU, and its seconds for a token: pass -> plain or drafted -> seconds. On a GPU each
    forward reads its weights once, for `rows` answers in the quality pass; a cycle is a forward of
    the target and one of the draft for each level. None where a size is not known."""
    if (speeds := known().cpu.get(cell.pair.name)) is not None:
        return "core", {
            name: {how: 1 / speed for how, speed in of.items()} for name, of in speeds.items()
        }
    models = [known_model(cell.pair.checkpoint(role).source) for role in cell.roles]
    if None in models:
        return None
    target, *drafts = [
        BYTES[cell.engine.dtype] * (model.active or model.parameters) / known().gpu["bytes_per_s"]
        for model in models
        if model is not None
    ]
    devices = cell.engine.devices
    target /= devices if cell.engine.parallel == "tensor" else 1
    levels = getattr(cell.drafter.options, "depth", cell.draft.length - 1) + 1
    clock = {
        "plain": devices * target,
        "drafted": devices * (target + levels * sum(drafts)) / (tau or 1.0),
    }
    return "GPU", {"clock": clock, "answers": {how: second / rows for how, second in clock.items()}}


def raised(cell: Cell, prompts: int, traced: bool) -> float:
    """Times what an answer of a chain under `lossless` costs in the quality pass on a core, as far
    as it is known."""
    times, rule = known().cpu.get(cell.pair.name, {}).get("times", {}), cell.rule.options
    name = rule.model_dump().get("of", {}).get("name", cell.rule.name)
    drawn = (
        times.get("drawn", 0.0) * min(1.0, DRAWN / max(1, prompts))
        if rule.has_own_randomness()
        else 0.0
    )
    more = times.get(cell.drafter.name, 1.0) * (times.get("traced", 1.0) if traced else 1.0)
    return more * (times.get(name, 1.0) + drawn)


def seconds(
    points: Iterable[Point], lengths: Lengths, batch: int, sessions: int = 1
) -> dict[str, list[float]]:
    """core and GPU -> seconds of the quality pass, and of the timed pass, whose cells are warmed up
    in every measuring session; in both plain decoding once for the cells that share it. Cells of
    which a size is not known take none."""
    found, plain = {"core": [0.0, 0.0], "GPU": [0.0, 0.0]}, set()
    for cell, tau, traced, answered, *_ in points:
        prompts, answers = counted(cell)
        costs = per_token(cell, tau, min(batch, prompts or 1))
        if costs is None or prompts is None or answers is None:
            continue
        (unit, cost), start = costs, known().cpu.get(cell.pair.name, {}).get("start", {})
        tokens = answers * (lengths.of(cell)[0] + start.get("answer", 0.0))
        left, timed = (
            tokens * max(0.0, 1 - answered / max(1, prompts)),
            tokens * min(1.0, cell.timed_prompts / prompts),
        )
        shared = (
            cell.pair.target.source,
            cell.task.name,
            cell.decoding,
            cell.n,
            cell.seed,
            cell.repeat,
        )
        if shared not in plain:
            plain.add(shared)
            found[unit][0] += left * cost["answers"]["plain"]
            found[unit][1] += timed * cost["clock"]["plain"]
        if not cell.is_autoregressive:
            found[unit][0] += left * cost["answers"]["drafted"] * raised(cell, prompts, traced)
            found[unit][1] += (
                timed * cost["clock"]["drafted"] + bool(timed) * start.get("cell", 0.0) * sessions
            )
    return found


def apart(sessions: int, gap_s: float) -> str:
    """What the pauses between measuring sessions add to a duration; empty for a single session."""
    return f", in {sessions} sessions that begin {gap_s:g} s apart" if sessions > 1 else ""


def duration(points: Iterable[Point], lengths: Lengths, batch: int, sessions: int = 1) -> str:
    """`12 min of one core`, `5.9 GPU h`, both, or – where nothing is known."""
    both = {unit: sum(parts) for unit, parts in seconds(points, lengths, batch, sessions).items()}
    cores = f"{max(1, round(both['core'] / 60))} min of one core" if both["core"] else ""
    return (
        ", ".join(filter(None, (cores, f"{both['GPU'] / 3600:.3g} GPU h" if both["GPU"] else "")))
        or "–"
    )
