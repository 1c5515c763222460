"""Recompute acceptance.json with the float64 references: `make golden`. Nothing here calls a rule of methods/rules.

A case is a chain or tree of six nodes over six tokens with rounded logits of both models and rounded random numbers; a
result is the path that a rule keeps, the distribution of the next token, and how many path nodes the lossless test
rejects: (relaxed, greedier). trees.json is worked out by hand and has no script.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.helpers import relaxed_reference, rule_reference
from tests.helpers.rule_reference import Child, Context, Tree, distribution, process, softmax

FOLDER = Path(__file__).parent
SAMPLINGS = [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 4, "top_p": 0.9}]
SHAPES = {"chain": [-1, 0, 1, 2, 3, 4], "tree": [-1, 0, 0, 1, 1, 2]}
VOCAB = 6
GROUPS = [[0, 3], [1, 2, 4], [2, 5]]

RULES: list[tuple[str, dict[str, Any], Callable[..., Any]]] = [
    ("greedy", {}, rule_reference.greedy),
    ("lossless", {}, rule_reference.lossless),
    ("lossless", {"q_mode": "draft"}, rule_reference.lossless),
    ("mars", {"variant": "algorithm1", "theta": 0.8}, rule_reference.mars),
    ("mars", {"variant": "sampling", "theta": 0.8}, rule_reference.mars),
    ("mars", {"variant": "released", "theta": 0.7, "q_mode": "draft"}, rule_reference.mars),
    ("fsd", {"divergence": "js_released", "threshold": 0.15}, rule_reference.fsd),
    ("fsd", {"divergence": "kl", "threshold": 0.4, "correction": "greedy"}, rule_reference.fsd),
    ("random", {"rate": 0.6}, rule_reference.random),
    ("coarse_grained", {"token": "keep"}, partial(relaxed_reference.coarse, groups=GROUPS)),
    ("coarse_grained", {"token": "redraw"}, partial(relaxed_reference.coarse, groups=GROUPS)),
    ("typical", {"variant": "paper", "epsilon": 0.09, "delta": 0.3, "correction": "greedy"}, relaxed_reference.typical),
    ("typical", {"variant": "released", "epsilon": 0.2, "delta": 0.2, "correction": "sample"},
     relaxed_reference.typical),
]
REFERENCE_NAMES = {"divergence": "kind"}


def draw_case(seed: int, shape: str, sampled: bool, sampling: dict[str, float]) -> dict[str, Any]:
    """A random case as plain numbers."""
    rng, parents = np.random.default_rng(seed), SHAPES[shape]
    base = 2 * rng.normal(size=(len(parents), VOCAB))
    draft_logits, logits = ((base + rng.normal(size=base.shape) + shift).round(2) for shift in (0.0, 3.0))
    tokens, q = [0], [1.0]
    for node, parent in list(enumerate(parents))[1:]:
        z = draft_logits[parent]
        p = distribution(z, _sampling(sampling)) if sampled else softmax(z)
        rank = parents[:node].count(parent)
        tokens.append(int(rng.choice(VOCAB, p=p)) if sampled else int(np.argsort(-z)[rank]))
        q.append(float(p[tokens[-1]]))
    return {"name": f"{shape} {'sampled' if sampled else 'deterministic'} {seed}", "parents": parents, "tokens": tokens,
            "sampled": sampled, "sampling": sampling, "logits": logits.tolist(), "draft_logits": draft_logits.tolist(),
            "q": q, "u": rng.uniform(0.01, 0.99, len(parents)).round(2).tolist()}


def _sampling(options: dict[str, float]) -> Any:
    return SimpleNamespace(**{"top_k": 0, "top_p": 1.0} | options, greedy=options["temperature"] == 0)


def contexts(case: dict[str, Any]) -> Tree:
    """Every node with its children, in float64."""
    tree, sampling = {}, _sampling(case["sampling"])
    for node in range(len(case["parents"])):
        children = [Child(i, case["tokens"][i], case["u"][i], case["q"][i])
                    for i, parent in enumerate(case["parents"]) if parent == node]
        z, draft_z = np.array(case["logits"][node]), np.array(case["draft_logits"][node])
        tree[node] = Context(z, distribution(z, sampling), draft_z, distribution(draft_z, sampling), case["sampled"],
                             sampling.greedy, z if sampling.greedy else process(z, sampling)), children
    return tree


def result(case: dict[str, Any], rule: str, options: dict[str, Any], slow: Callable[..., Any]) -> dict[str, Any]:
    """What the reference keeps and emits."""
    given = {REFERENCE_NAMES.get(name, name): value for name, value in options.items()}
    if rule == "typical":
        path, emitted, not_strict = slow(contexts(case), _sampling(case["sampling"]), **given)
    else:
        path, emitted, not_strict = rule_reference.walk(contexts(case), partial(slow, **given))
    return {"rule": rule, "options": options, "path": path, "emitted": np.round(emitted, 9).tolist(),
            "relaxed": int(not_strict[0]), "greedier": int(not_strict[1])}


def acceptance() -> dict[str, Any]:
    """The content of acceptance.json."""
    cases = []
    for seed, (shape, sampled, sampling) in enumerate(itertools.product(SHAPES, (False, True), SAMPLINGS)):
        if not (sampled and sampling["temperature"] == 0):
            case = draw_case(seed, shape, sampled, sampling)
            rules = [entry for entry in RULES if entry[0] != "greedy" or sampling["temperature"] == 0]
            cases.append(case | {"results": [result(case, *entry) for entry in rules]})
    return {"source": "tests/golden/make.py, from the float64 references in tests/helpers", "groups": GROUPS,
            "cases": cases}


def lines(value: Any, indent: str = "") -> str:
    """JSON with a line for each member of the outer levels, so that a change shows as few lines."""
    if isinstance(value, dict) and len(json.dumps(value)) > 120:
        body = ",\n".join(f'{indent} {json.dumps(key)}: {lines(entry, indent + " ")}' for key, entry in value.items())
        return f"{{\n{body}\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"{indent} {lines(entry, indent + ' ')}" for entry in value) + f"\n{indent}]"
    return json.dumps(value)


if __name__ == "__main__":
    (FOLDER / "acceptance.json").write_text(lines(acceptance()) + "\n")
