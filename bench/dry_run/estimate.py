"""Memory and time that cells take, from sizes and rates in known.yaml."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel

from bench.config.paths import portable
from methods.engine.source import ModelError, ModelSource, read_json
from results.store.errors import one_line
from tasks.registry import build

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.store.state import Todo

PROMPT = 1024
"""Tokens assumed for the longest prompt."""
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


class ModelSize(BaseModel):
    """Parameters; those that a token reads (None: all); those of embedding and LM head, which
    tensor parallelism does not divide; keys and values that the cache holds for a token (None: not
    known). Whether the hub gives it only to who was granted access."""

    parameters: int
    kv: int | None
    active: int | None = None
    whole: int = 0
    gated: bool = False


class Rate(BaseModel):
    """Tokens per second that one core or one GPU was measured to decode with models of one size, in
    the quality pass (`answers`) and in the timed pass (`clock`)."""

    parameters: int
    unit: Literal["core", "GPU"]
    answers: float
    clock: float


class KnownSizes(BaseModel):
    """known.yaml. `data`: bytes that a task downloads, and rows of the split that it reads, where
    they are known; `lengths`: task -> tokens of an answer."""

    rates: list[Rate]
    models: dict[str, ModelSize]
    data: dict[str, dict[str, float]]
    lengths: dict[str, int]


@cache
def known_sizes() -> KnownSizes:
    return KnownSizes.model_validate(
        yaml.safe_load((Path(__file__).parent / "known.yaml").read_text(encoding="utf-8"))
    )


def known_model(source: str) -> ModelSize | None:
    return known_sizes().models.get(portable(source))


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Role -> bytes of its weights, and of a cache of `rows` rows of `slots` tokens; None where
    they are not known. `whole`: bytes of the target's weights that tensor parallelism does not
    divide. What a forward holds for a moment comes on top."""

    parts: dict[str, tuple[int | None, int | None]]
    rows: int
    slots: int
    whole: int = 0

    @property
    def total(self) -> int:
        return sum(size or 0 for part in self.parts.values() for size in part)

    @property
    def is_whole(self) -> bool:
        return all(None not in part for part in self.parts.values())

    def with_rows(self, rows: int) -> MemoryNeed:
        """What another number of rows needs."""
        parts = {
            role: (weights, cache and cache // self.rows * rows)
            for role, (weights, cache) in self.parts.items()
        }
        return replace(self, parts=parts, rows=rows)


def memory_of(cell: Cell, quality_batch: int, folders: Mapping[str, Path]) -> MemoryNeed:
    """Weights and cache of the cell's models at its largest batch. `folders`: role -> a folder with
    the model's config.json, of models that known.yaml does not list. Raises ModelError."""
    rows = max(cell.batch, min(quality_batch, prompts_and_answers(cell)[0] or quality_batch))
    configs = {role: read_json(folder / "config.json") for role, folder in folders.items()}
    drafter, size = cell.drafter.options, BYTES[cell.engine.dtype]
    slots = PROMPT + cell.max_new_tokens + drafter.nodes(cell.draft.length) + 1
    layers = configs["target"].get("num_hidden_layers") if configs else None
    if layers is not None:
        drafter.check_target(SimpleNamespace(source=cell.pair.target.source, layers=layers))
    parts: dict[str, tuple[int | None, int | None]] = {}
    whole = 0
    for role, checkpoint in cell.checkpoints.items():
        model = known_model(checkpoint.source)
        if model is None and folders:
            model = model_in(folders[role], configs[role])
        parts[role] = (None, None)
        if model is not None:
            parts[role] = (size * model.parameters, model.kv and size * model.kv * slots * rows)
            whole += size * model.whole * (role == "target")
    return MemoryNeed(parts, rows, slots, whole)


@cache
def parameters_in(folder: Path) -> int | None:
    """What the headers of a folder's safetensors files tell; None where there are none. Raises
    ModelError for a file that is not safetensors."""
    from huggingface_hub import get_local_safetensors_metadata
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    try:
        metadata = get_local_safetensors_metadata(folder)
    except (NotASafetensorsRepoError, FileNotFoundError):
        return None
    except (OSError, ValueError, SafetensorsParsingError) as error:
        raise ModelError(f"{folder}: not safetensors: {one_line(error)}") from error
    return sum(metadata.parameter_count.values())


def model_in(folder: Path, config: Mapping[str, Any]) -> ModelSize | None:
    """The size of the model in a folder with this config.json; None where its weights are not
    there. Raises ModelError."""
    parameters = parameters_in(folder)
    if parameters is None:
        return None
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    width = config.get("head_dim") or (hidden // heads if heads and hidden else None)
    groups = config.get("num_key_value_heads") or heads
    layers = config.get("num_hidden_layers")
    kv = 2 * layers * groups * width if width and groups and layers else None
    tables = 1 if config.get("tie_word_embeddings") else 2
    whole = tables * config.get("vocab_size", 0) * (hidden or 0)
    return ModelSize(parameters=parameters, kv=kv, whole=whole)


_COUNTED: dict[tuple[str, int | None], tuple[int | None, int | None]] = {}


def prompts_and_answers(cell: Cell) -> tuple[int | None, int | None]:
    """Prompts and answers that the cell decodes: a turn is an answer, and so is each of several
    samples. None for a task whose rows are neither here nor known."""
    key = (cell.task.model_dump_json(), cell.n)
    if key not in _COUNTED:
        task = build(cell.task.name, cell.task.options)
        options = cell.task.options.model_dump()
        if task.path is not None:
            prompts = task.prompts(cell.n)
            _COUNTED[key] = len(prompts), sum(len(prompt.turns) or 1 for prompt in prompts)
        else:
            data = known_sizes().data
            size = data.get(cell.task.name) or data.get(str(options.get("hub"))) or {}
            rows = [number for number in (cell.n, size.get("rows")) if number is not None]
            count = int(min(rows)) * int(options.get("samples", 1)) if rows else None
            _COUNTED[key] = count, count
    return _COUNTED[key]


class PlannedCell(NamedTuple):
    """A cell to measure.

    traced     whether its answers are traced.
    todo       what the store lacks of it; None where that is not known.
    label      of its point; empty for a cell that others are compared with.
    awaits     the command that makes a file which the cell stands without; empty for most.
    step_time  how long that takes, in words.
    """

    cell: Cell
    traced: bool = False
    todo: Todo | None = None
    label: str = ""
    awaits: str = ""
    step_time: str = ""


def answer_tokens(cell: Cell) -> int:
    """Tokens that an answer is taken to have: those of known.yaml under the longest name that the
    task's begins with (gsm8k_eagle has the solutions of gsm8k), at most the cell's limit, which is
    taken where none is there."""
    task = cell.task.name
    lengths = known_sizes().lengths
    names = [name for name in lengths if task == name or task.startswith(f"{name}_")]
    longest = max(names, key=len, default=None)
    return cell.max_new_tokens if longest is None else min(lengths[longest], cell.max_new_tokens)


def target_size(cell: Cell) -> int | None:
    """Parameters of the target that a token reads; None where they are not known."""
    source = cell.pair.target.source
    folder = ModelSource.of(source).folder
    model, config = known_model(source), folder / "config.json"
    if model is None and config.is_file():
        model = model_in(folder, read_json(config))
    return None if model is None else model.active or model.parameters


def seconds(points: Iterable[PlannedCell]) -> dict[str, float]:
    """core and GPU -> seconds that the points take, to a factor of two: every token takes as long
    as was measured of the model nearest in size (`Rate`), in proportion to the parameters. Plain
    decoding counts once for the cells that share it. Cells of unknown size take none."""
    total = {"core": 0.0, "GPU": 0.0}
    baselines = set()
    for point in points:
        cell = point.cell
        prompts, answers = prompts_and_answers(cell)
        size = target_size(cell)
        if size is None or not prompts or not answers:
            continue
        rate = min(known_sizes().rates, key=lambda rate: abs(math.log(rate.parameters / size)))
        target = cell.pair.target.source
        baseline = (target, cell.task.name, cell.decoding, cell.n, cell.seed, cell.repeat)
        runs = (baseline not in baselines) + (not cell.is_autoregressive)
        baselines.add(baseline)
        missing, timed = 1.0, min(1.0, cell.timed_prompts / prompts)
        if point.todo is not None and not (point.todo.whole or point.todo.fault):
            missing = (len(point.todo.decode) + len(point.todo.trace)) / prompts
            timed = len(point.todo.time) / prompts
        devices = 1 if cell.engine.parallel == "tensor" else cell.engine.devices
        total[rate.unit] += (
            (missing / rate.answers + timed / rate.clock)
            * (answers * answer_tokens(cell) * runs)
            * (devices * size / rate.parameters)
        )
    return total


def step_duration(cell: Cell, answers: tuple[int, int]) -> str:
    """How long it takes to decode so many answers like the cell's in the quality pass, the fewest
    and the most, in words; empty where a size is not known."""
    size = target_size(cell)
    if size is None or not answers[0]:
        return ""
    rate = min(known_sizes().rates, key=lambda rate: abs(math.log(rate.parameters / size)))
    devices = 1 if cell.engine.parallel == "tensor" else cell.engine.devices
    each = answer_tokens(cell) / rate.answers * devices * size / rate.parameters
    least, most = (in_words({rate.unit: number * each}) for number in answers)
    return f"{least} to {most}" if answers[1] else f"{least} or more"


def duration(points: Iterable[PlannedCell]) -> str:
    """`12 min of one core`, `5.9 GPU h`, both, or nothing where no size is known."""
    return in_words(seconds(points))


def in_words(total: Mapping[str, float]) -> str:
    """Seconds of core and of GPU in words."""
    total, parts = {"core": 0.0, "GPU": 0.0, **total}, []
    if total["core"]:
        parts.append(f"{max(1, round(total['core'] / 60))} min of one core")
    if total["GPU"]:
        hours = total["GPU"] / 3600
        parts.append(f"{hours:.1f} GPU h" if hours < 10 else f"{hours:,.0f} GPU h")
    return ", ".join(parts)


def apart(sessions: int, gap_s: float) -> str:
    """What the pauses between measuring sessions add to a duration; empty for a single session."""
    return f", in {sessions} sessions that begin {gap_s:g} s apart" if sessions > 1 else ""
