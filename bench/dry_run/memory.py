"""What a point takes in device memory: the weights, and the cache at its batch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.dry_run.sizes import known
from methods.engine.families import obstacle
from methods.engine.source import ModelError, Source, read_json
from results.store.reasons import one_line

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.drafters.base import Layered
    from methods.engine.language_model import LanguageModel

PROMPT = 1024
"""Tokens assumed for the longest prompt, or what the model's positions leave beside the answer."""
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
FLOATS = ("F64", "F32", "F16", "BF16")
INTEGERS = {"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
"""Types of tensors in a file: those that engine.dtype replaces, and bytes of the others."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one model of a pair; None for one whose size is not known."""

    role: str
    source: str
    weights: int | None
    cache: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """`slots` tokens a row, `nodes` of them a draft's, in `rows` rows. What a forward holds for a moment, and weights
    in other layouts, come on top."""

    parts: tuple[Part, ...]
    rows: int
    slots: int
    nodes: int

    @property
    def total(self) -> int:
        return sum((part.weights or 0) + (part.cache or 0) for part in self.parts)

    @property
    def is_whole(self) -> bool:
        return all(part.weights is not None for part in self.parts)


def memory_of(cell: Cell, folders: Mapping[str, Path]) -> Memory | None:
    """What the cell's models take. With `folders`, role -> a folder with the model's config.json, exactly: they are
    built on the meta device. Without any, as known.yaml says; None where it does not say of the target. Raises
    ModelError."""
    sources = {role: cell.pair.checkpoint(role).source for role in cell.roles}
    options, nodes = cell.drafter.options, cell.drafter.options.nodes(cell.draft.length)
    if not folders:
        size, slots = BYTES[cell.engine.dtype], PROMPT + cell.max_new_tokens + nodes + 1
        sizes = {role: known().models.get(source) for role, source in sources.items()}
        if sizes["target"] is None:
            return None
        return Memory(tuple(
            Part(role, sources[role], None, None) if model is None else
            Part(role, sources[role], size * model.parameters, size * model.kv * slots * cell.batch)
            for role, model in sizes.items()), cell.batch, slots, nodes)
    dtype, trust = cell.engine.dtype, cell.pair.trust_remote_code
    models = {role: shape_of(role, folder, folders["target"], dtype, trust, type(options).load)
              for role, folder in folders.items()}
    options.check_target(models["target"].body)
    room = min(model.positions for model in models.values()) - cell.max_new_tokens
    slots = max(min(PROMPT, room), 1) + cell.max_new_tokens + nodes + 1  # as the decode loop allocates
    return Memory(tuple(Part(role, sources[role], model.weights, model.kv * slots * cell.batch)
                        for role, model in models.items()), cell.batch, slots, nodes)


@dataclass(frozen=True, slots=True)
class Shape:
    """Bytes of a model's weights, and of keys and values for a token; tokens that it has positions for; its layers."""

    weights: int
    kv: int
    positions: int
    body: Layered


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of the model in a folder."""

    source: str
    layers: int


@cache
def shape_of(role: str, folder: Path, target: Path, dtype: str, trust: bool, load: Callable[..., Any]) -> Shape:
    """What a model takes on this target: as the headers of its files say, or where these do not tell it, built on the
    meta device, a head by `load`. Raises ModelError."""
    config, files, is_model = read_json(folder / "config.json"), _files(folder), role in ("target", "draft")
    if not files or Source.of(str(folder)).is_cut or (is_model and obstacle(config) is not None):
        return _built(role, folder, target, dtype, trust, load)
    sizes = [config.get("target_hidden_size") or config.get("hidden_size"),
             read_json(target / "config.json").get("hidden_size")]
    if not is_model and None not in sizes and sizes[0] != sizes[1]:
        raise ModelError(f"{folder}: made for a target of hidden size {sizes[0]}, and {target} has {sizes[1]}; give "
                         "the head that belongs to this target")
    weights = sum(math.prod(shape) * (BYTES[dtype] if kind in FLOATS else INTEGERS[kind])
                  for file in files for name, kind, shape in _tensors(file)
                  if not (name == "lm_head.weight" and is_model and config.get("tie_word_embeddings")))
    positions = config.get("max_position_embeddings") or 1 << 30 if is_model else 1 << 30
    layers = config.get("num_hidden_layers") or 1
    body = Layers(str(folder), layers)
    if role == "medusa":
        return Shape(weights, 0, positions, body)
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    groups = config.get("num_key_value_heads") or config["num_attention_heads"]
    frequencies = width * (4 if is_model else BYTES[dtype])  # the rotary ones, as they are and before scaling
    return Shape(weights + frequencies, 2 * layers * groups * width * BYTES[dtype], positions, body)


def _files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint; none where one is missing."""
    index = folder / "model.safetensors.index.json"
    names = (set(read_json(index).get("weight_map", {}).values()) if index.is_file() else
             [name for name in ("model.safetensors", "medusa_lm_head.safetensors") if (folder / name).is_file()])
    files = [folder / name for name in names]
    return files if all(file.is_file() for file in files) else []


def _tensors(file: Path) -> Iterator[tuple[str, str, list[int]]]:
    """Name, type and shape of the tensors in a safetensors file. Raises ModelError."""
    try:
        with file.open("rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        return ((name, one["dtype"], one["shape"]) for name, one in header.items() if name != "__metadata__")
    except (OSError, ValueError, MemoryError, OverflowError) as error:
        raise ModelError(f"{file}: not safetensors: {one_line(error)}") from error


def _built(role: str, folder: Path, target_folder: Path, dtype: str, trust: bool, load: Callable[..., Any]) -> Shape:
    import torch  # only here: transformers takes seconds to import

    from methods.engine.cut import load_cut
    from methods.engine.random_weights import nbytes

    target = _language_model(target_folder, dtype, trust)
    model: Any = target
    is_cut = role == "draft" and Source.of(str(folder)).is_cut
    if is_cut:
        model = load_cut(str(folder), target)
    elif role == "draft":
        model = _language_model(folder, dtype, trust)
    elif role != "target":
        with torch.device("meta"):
            model = load(f"random:{Source.of(str(folder)).folder}", target, revision=None, dtype=dtype, device="meta",
                         trust_remote_code=trust)
    cached = model.new_cache(1, 1).nbytes if hasattr(model, "new_cache") else 0
    return Shape(nbytes(model.model, target.model if is_cut else None), cached, model.max_positions, target)


@cache
def _language_model(folder: Path, dtype: str, trust_remote_code: bool) -> LanguageModel:
    from methods.engine.cut import load_cut
    from methods.engine.random_weights import from_shape

    if Source.of(str(folder)).is_cut:
        base, _ = Source.of(str(folder)).origin
        return load_cut(str(folder), _language_model(Source.of(base).folder, dtype, trust_remote_code))
    return from_shape(str(folder), dtype=dtype, device="meta", trust_remote_code=trust_remote_code)
