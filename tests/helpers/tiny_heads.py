"""Heads of a tiny target: untrained ones of each kind, and Medusa heads fitted to its answers."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from methods import registry
from methods.decode import Limits, Request, generate
from methods.drafters.base import Drafter
from methods.engine.language_model import LanguageModel
from methods.heads.head import Head
from methods.heads.medusa import Medusa, MedusaHeads
from methods.method import Method, build_method
from methods.pruning import Pruning
from methods.rules.base import Rule
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.decoding import method_on
from tests.helpers.rehearsal.models import random_head as draw_head
from tests.helpers.tiny_models import language_model, noisy_copy, prompts

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
    return {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": target.vocab_size,
        "intermediate_size": 40,
        "hidden_size": target.model.config.hidden_size,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
    } | changes


def save_head(folder: Path, kind: str, raw: dict, seed: int = 0) -> Path:
    """A checkpoint folder: config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    save_file(
        {
            name: tensor.contiguous()
            for name, tensor in draw_head(kind, raw, seed).state_dict().items()
        },
        folder / "model.safetensors",
    )
    return folder


@cache
def _folder(kind: str, raw: str) -> Path:
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


def random_medusa(target: LanguageModel):
    """Four untrained Medusa heads."""
    torch.manual_seed(0)
    return Medusa(
        "random", MedusaHeads(4, target.model.config.hidden_size, target.vocab_size).eval(), "test"
    )


def model_for(name: str, target: LanguageModel) -> LanguageModel | Head | Any:
    """What the drafter runs: a noisy copy of the target, an untrained head of it, or nothing."""
    match registry.drafter(name).model_role:
        case None:
            return None
        case "draft":
            return noisy_copy(target)
        case "medusa":
            return random_medusa(target)
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
    drafts = registry.drafter(drafter)(**(options or OPTIONS.get(drafter, {})))
    decides = registry.rule(rule)() if isinstance(rule, str) else rule
    model = model_for(drafter, target)
    return build_method(target, model, drafts, decides, sampling, length, pruning)


def requests(count: int, key: str = "0/request", **drawn: int) -> list[Request]:
    """So many prompts, each with a stream of random numbers of its own."""
    return [Request(ids, f"{key}/{place}") for place, ids in enumerate(prompts(count, **drawn))]


def inner_nodes(draft: Draft, row: int) -> list[tuple[list[int], torch.Tensor]]:
    """The path of drafted tokens to every node of a row that has children, and the draft logits [V]
    behind it."""
    parents, found = draft.parents.expand(draft.tokens.shape)[row].tolist(), []
    for node in sorted(set(parents[1:])):
        line = [node]
        while line[0]:
            line.insert(0, parents[line[0]])
        found.append((draft.tokens[row, line[1:]].tolist(), draft.logits[row, node]))
    return found


def fitted_medusa(
    target: LanguageModel, rows: list[list[int]], *, new: int, heads: int = 4
) -> Medusa:
    """Ridge regression from the final-norm state at t to the token at t+2+i, over the answers to
    `rows`. The residual blocks are the identity. Heads that were given a state one place off would
    predict hardly anything."""
    method, limits = method_on(target), Limits(new + heads, frozenset())
    states, later = [], [[] for _ in range(heads)]
    for row in rows:
        [answer] = generate(method, [Request(row, "fit")], limits)
        ids = row + answer.output_ids
        with torch.inference_mode():
            hidden = target.model(
                torch.tensor([ids]), output_hidden_states=True, use_cache=False
            ).hidden_states[-1][0]
        span = range(len(row) - 1, len(ids) - 1 - heads)
        states += [hidden[t] for t in span]
        for i in range(heads):
            later[i] += [ids[t + 2 + i] for t in span]
    x = torch.stack(states).double()
    fit = MedusaHeads(heads, x.shape[1], target.vocab_size).start_from(
        torch.zeros(target.vocab_size, x.shape[1])
    )
    gram = x.T @ x + 1e-2 * torch.eye(x.shape[1], dtype=torch.float64)
    with torch.no_grad():
        for head, tokens in zip(fit, later, strict=True):
            y = torch.nn.functional.one_hot(torch.tensor(tokens), target.vocab_size).double()
            head[-1].weight.copy_(8.0 * torch.linalg.solve(gram, x.T @ y).T)
    return Medusa("fitted", fit.eval().requires_grad_(False), "test")
