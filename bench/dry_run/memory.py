"""What a point takes in device memory, from configurations alone: its models are built on the meta device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from methods.engine.source import Source

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head

PROMPT = 1024
"""Tokens assumed for the longest prompt, or what the model's positions leave beside the answer."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one model of a pair: `weights` and `cache` are exact, the latter for the slots of the estimate.

    layers     how many it has; 0 for a head.
    embedding  bytes of its input embedding; 0 for a head. Its LM head has as many,
    tied       or is the embedding.
    """

    role: str
    source: str
    weights: int
    cache: int
    layers: int = 0
    embedding: int = 0
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """`slots` tokens a row in `rows` rows; `working` is the largest of what a prefill and a verification of `nodes`
    nodes hold for a moment, an estimate: mask, activations of one layer, features, logits and probabilities. `missing`:
    role -> source of models whose size is not known. `copies`: bytes of weights in other layouts, at most."""

    parts: tuple[Part, ...]
    rows: int
    slots: int
    nodes: int
    working: int
    missing: Mapping[str, str] = field(default_factory=dict)
    copies: int = 0

    @property
    def total(self) -> int:
        return self.working + self.copies + sum(part.weights + part.cache for part in self.parts)


def estimate(cell: Cell, folders: Mapping[str, Path], prompt: int | None = None) -> Estimate:
    """What the cell takes. `folders`: role -> a folder with the part's config.json; `prompt`: tokens of the longest
    prompt, by default PROMPT. Raises ModelError."""
    import torch  # only here: a refused command should not cost it

    from methods.engine.cut import load_cut
    from methods.engine.random_weights import nbytes

    target = _language_model(folders["target"], cell.engine.dtype, cell.pair.trust_remote_code)
    cell.drafter.options.check_target(target)
    models: dict[str, LanguageModel | Head] = {"target": target}
    for role in cell.roles[1:]:
        if role == "draft" and Source.of(str(folders[role])).is_cut:
            models[role] = load_cut(str(folders[role]), target)
        elif role == "draft":
            models[role] = _language_model(folders[role], cell.engine.dtype, cell.pair.trust_remote_code)
        else:
            with torch.device("meta"):
                models[role] = cell.drafter.options.load(
                    f"random:{Source.of(str(folders[role])).folder}", target, revision=None, dtype=cell.engine.dtype,
                    device="meta", trust_remote_code=cell.pair.trust_remote_code)
    new = cell.max_new_tokens
    longest = min(model.max_positions for model in models.values())
    prompt = max(min(PROMPT, longest - new), 1) if prompt is None else prompt
    nodes = cell.drafter.options.nodes(cell.draft.length)
    slots = prompt + new + nodes + 1  # as the decode loop allocates
    parts = []
    for role, model in models.items():
        held = model.new_cache(cell.batch, slots) if hasattr(model, "new_cache") else None
        size = 0 if held is None else held.nbytes
        beside = target.model if Source.of(str(folders[role])).is_cut and role == "draft" else None
        parts.append(Part(role, cell.pair.checkpoint(role).source, nbytes(model.model, beside), size, *_outline(model)))
    wanted = len(cell.drafter.options.features(models.get(cell.drafter.options.model_role or "")))
    return Estimate(tuple(parts), cell.batch, slots, nodes,
                    max(_working(target, cell.batch, prompt, slots, 1, wanted),
                        _working(target, cell.batch, nodes, slots, nodes, wanted)), copies=_copies(cell, models, parts))


def _copies(cell: Cell, models: Mapping[str, LanguageModel | Head], parts: Sequence[Part]) -> int:
    """Bytes that weights in other layouts take at most. A head follows its target, a cut shares its target's copies."""
    from methods.engine.products import copied_bytes, shapes

    target, threads = models["target"].model, cell.engine.packed_threads
    dtype = next(target.parameters()).dtype
    if threads is None or not (copied := copied_bytes(shapes(target), dtype, threads)):
        return 0
    for part in parts[1:]:
        beside = part.role == "draft" and Source.of(part.source).is_cut
        smallest = {} if part.role in cell.pair.causal_roles else {"smallest": 0}
        copied += part.weights if beside else copied_bytes(shapes(models[part.role].model), dtype, threads, **smallest)
    return copied


def _outline(model: LanguageModel | Head) -> tuple[int, int, bool]:
    """Layers, bytes of the embedding, and whether it is the LM head too, as `Part` has them."""
    module: Any = model.model
    layers = getattr(getattr(module, "base_model", None), "layers", None)
    if layers is None:
        return 0, 0, False
    embedding = module.get_input_embeddings().weight
    return len(layers), embedding.nbytes, module.get_output_embeddings().weight is embedding


def _working(target: LanguageModel, rows: int, tokens: int, slots: int, logits: int, features: int) -> int:
    """Bytes that one forward of `tokens` tokens a row holds at its widest, with `logits` rows of logits."""
    config, dtype = target.model.config.get_text_config(decoder=True), target.model.dtype
    size = dtype.itemsize
    hidden = config.hidden_size
    inner = getattr(config, "moe_intermediate_size", None)
    inner = config.intermediate_size if inner is None else inner * config.num_experts_per_tok
    mask = tokens * slots * (size + 1)
    layer = tokens * (4 * hidden + 3 * inner) * size
    states = tokens * hidden * (config.num_hidden_layers + 1 + features) * size if features else 0
    decisions = logits * target.vocab_size * (size + 3 * 4)  # logits, in float32, probabilities, one for the rule
    return rows * (mask + layer + states + decisions)


@cache
def _language_model(folder: Path, dtype: str, trust_remote_code: bool) -> LanguageModel:
    from methods.engine.cut import load_cut
    from methods.engine.random_weights import from_shape

    if Source.of(str(folder)).is_cut:
        base, _ = Source.of(str(folder)).origin
        return load_cut(str(folder), _language_model(Source.of(base).folder, dtype, trust_remote_code))
    return from_shape(str(folder), dtype=dtype, device="meta", trust_remote_code=trust_remote_code)
