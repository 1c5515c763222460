"""What a point takes in device memory: the weights, and the cache at its batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.dry_run.sizes import known
from methods.engine.source import Source

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.engine.language_model import LanguageModel

PROMPT = 1024
"""Tokens assumed for the longest prompt, or what the model's positions leave beside the answer."""
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


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
    import torch  # only here: a refused command should not cost it

    from methods.engine.cut import load_cut
    from methods.engine.random_weights import nbytes

    trust, dtype = cell.pair.trust_remote_code, cell.engine.dtype
    target = _language_model(folders["target"], dtype, trust)
    options.check_target(target)
    models: dict[str, Any] = {"target": target}
    cuts = {role for role in cell.roles[1:] if role == "draft" and Source.of(str(folders[role])).is_cut}
    for role in cell.roles[1:]:
        if role in cuts:
            models[role] = load_cut(str(folders[role]), target)
        elif role == "draft":
            models[role] = _language_model(folders[role], dtype, trust)
        else:
            with torch.device("meta"):
                models[role] = options.load(f"random:{Source.of(str(folders[role])).folder}", target, revision=None,
                                            dtype=dtype, device="meta", trust_remote_code=trust)
    room = min(model.max_positions for model in models.values()) - cell.max_new_tokens
    slots = max(min(PROMPT, room), 1) + cell.max_new_tokens + nodes + 1  # as the decode loop allocates
    return Memory(tuple(
        Part(role, sources[role], nbytes(model.model, target.model if role in cuts else None),
             model.new_cache(cell.batch, slots).nbytes if hasattr(model, "new_cache") else 0)
        for role, model in models.items()), cell.batch, slots, nodes)


@cache
def _language_model(folder: Path, dtype: str, trust_remote_code: bool) -> LanguageModel:
    from methods.engine.cut import load_cut
    from methods.engine.random_weights import from_shape

    if Source.of(str(folder)).is_cut:
        base, _ = Source.of(str(folder)).origin
        return load_cut(str(folder), _language_model(Source.of(base).folder, dtype, trust_remote_code))
    return from_shape(str(folder), dtype=dtype, device="meta", trust_remote_code=trust_remote_code)
