"""Untrained heads of a tiny target, and methods with them."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from methods import registry
from methods.decode import Request
from methods.drafters.base import Drafter
from methods.engine.language_model import LanguageModel
from methods.heads.head import Head
from methods.heads.medusa import Medusa, MedusaHeads
from methods.method import Method, build_method
from methods.pruning import Pruning
from methods.rules.base import Rule
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.rehearsal.models import random_head as draw_head
from tests.helpers.tiny_models import (
    SHAPE,
    language_model,
    noisy_copy,
    prompts,
    save_checkpoint,
)

SMALL = {"total": 16, "depth": 2, "top_k": 4}
OPTIONS = {
    "eagle3": SMALL,
    "eagle2": SMALL,
    "hass": SMALL,
    "eagle": {"tree": "small_10"},
    "medusa": {"tree": "small_10"},
    "lookahead": {"window": 4, "guesses": 3},
}
"""Options of the drafters that draft trees, at a size for tests: at most four draft tokens in a
row."""


def head_json(target: LanguageModel, **changes) -> dict:
    """config.json of a head for the target; its head dimension is not hidden size / heads."""
    sizes = {"vocab_size": target.vocab_size, "hidden_size": target.model.config.hidden_size}
    own = {
        "architectures": ["LlamaForCausalLM"],
        "intermediate_size": 40,
        "head_dim": 12,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
    }
    return SHAPE | own | sizes | changes


def save_head(folder: Path, kind: str, raw: dict, seed: int = 0) -> Path:
    return save_checkpoint(folder, raw, draw_head(kind, raw, seed).state_dict())


@cache
def _folder(kind, raw):
    return save_head(Path(tempfile.mkdtemp(prefix="leeway-head-")), kind, json.loads(raw))


def random_head(name: str, target: LanguageModel, dtype: str = "float32", **changes) -> Head:
    """The head that drafter `name` needs, loaded from disk; EAGLE-3 has two thirds of the target's
    vocabulary."""
    kind = "eagle3" if name == "eagle3" else "eagle"
    if kind == "eagle3":
        changes = {"draft_vocab_size": target.vocab_size * 2 // 3} | changes
    folder = _folder(kind, json.dumps(head_json(target, **changes)))
    return registry.drafter(name).load(
        str(folder), target, revision=None, dtype=dtype, device=str(target.device)
    )


def small(name: str) -> Drafter:
    """The drafter at a size for tests."""
    return registry.drafter(name)(**OPTIONS.get(name, {}))


def model_for(name: str, target: LanguageModel) -> LanguageModel | Head | Any:
    """What the drafter runs: a noisy copy of the target, an untrained head of it, or nothing."""
    match registry.drafter(name).model_role:
        case None:
            return None
        case "draft":
            return noisy_copy(target)
        case "medusa":
            torch.manual_seed(0)
            heads = MedusaHeads(4, target.model.config.hidden_size, target.vocab_size)
            return Medusa("random", heads.eval(), "test")
    return random_head(name, target)


def method_of(
    drafter: str,
    rule: Rule | str = "lossless",
    sampling: Sampling = Sampling(1.0),  # noqa: B008  it is frozen
    *,
    target: LanguageModel | None = None,
    length: int = 4,
    pruning: Pruning | None = None,
    **options: Any,
) -> Method:
    """The rule on this drafter's drafts for a target of three layers, where no other is given; the
    drafter with these options, or else at a size for tests."""
    target = target or language_model(layers=3)
    drafts = registry.drafter(drafter)(**options) if options else small(drafter)
    decides = registry.rule(rule)() if isinstance(rule, str) else rule
    model = model_for(drafter, target)
    return build_method(target, model, drafts, decides, sampling, length, pruning)


def requests(count: int, key: str = "0/request", **drawn: int) -> list[Request]:
    """So many prompts, each with a stream of random numbers of its own."""
    return [Request(ids, f"{key}/{place}") for place, ids in enumerate(prompts(count, **drawn))]


def path_to(draft: Draft, row: int, node: int) -> list[int]:
    """The tokens that are drafted up to a node, the root's left out."""
    ancestors = draft.ancestors.expand(len(draft.tokens), -1, -1)
    return draft.tokens[row, ancestors[row, node]].tolist()[1:]


def inner_nodes(draft: Draft, row: int) -> list[tuple[list[int], torch.Tensor]]:
    """The path to every node of a row that has children, and the draft logits [V] behind it."""
    parents = draft.parents.expand(draft.tokens.shape)[row, 1:].tolist()
    return [(path_to(draft, row, node), draft.logits[row, node]) for node in sorted(set(parents))]
