"""Rules that look along a chain beside their slow versions, in the form of tests/helpers/rule_pairs.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from methods.rules.verification import State, Verification
from tests.helpers import path_reference
from tests.helpers.path_reference import Chain


def spent(v: Verification) -> State:
    """Requests that have used up different parts of a budget of 8."""
    return {"spent": torch.linspace(0.0, 8.0, len(v.u), dtype=torch.float64)}


def thinking(v: Verification) -> State:
    """Every second request is inside a thinking span."""
    return {"thinking": torch.arange(len(v.u)) % 2 == 0}


def with_state(state: Callable[[Verification], State]) -> Callable[[Verification], Verification]:
    return lambda v: Verification(v.draft, v.logits, v.sampling, v.u, state=state(v))


def _of_row(name: str, v: Verification, row: int, options: dict[str, Any]) -> dict[str, Any]:
    """The slow version's arguments for one row: the options, and what the rule's state or the decoding adds."""
    match name:
        case "asd":
            return options | {"spent": float(v.state["spent"][row])}
        case "relaxed_topk":
            inside = options.get("span") != "thinking" or bool(v.state["thinking"][row])
            delta = options.get("delta", 0.6) if inside else 0.0
            return {"delta": delta, "top_n": options.get("top_n", 10)}
        case "topp_window":
            return options | {"temperature": v.sampling.temperature, "top_p": v.sampling.top_p}
    return options


def expected(name: str, options: dict[str, Any]) -> Callable[..., Any]:
    """(case, row, the row's contexts) -> what the slow version keeps and emits."""
    def of_row(v: Verification, row: int, tree: Any) -> Any:
        chain = Chain.of(tree)
        if name == "topp_window" and v.sampling.greedy:
            kept, emitted = path_reference.token_wise(chain)
        else:
            kept, emitted, *_ = getattr(path_reference, name)(chain, **_of_row(name, v, row, options))
        lossless = name == "block" and options.get("variant") != "ascend"
        return list(range(kept + 1)), emitted, (0, 0) if lossless else chain.not_strict(kept)
    return of_row


def prepare(name: str) -> Callable[[Verification], Verification]:
    """Gives a case the rule's state."""
    return {"asd": with_state(spent), "relaxed_topk": with_state(thinking)}.get(name, lambda v: v)


PATHS = {
    "fly": ("fly", "always", {"window": 2}),
    "fly no window": ("fly", "always", {"no_window": True, "entropy": 0.5}),
    "fly no gate": ("fly", "always", {"window": 3, "entropy": 0.0}),
    "fly strict": ("fly", "never", {"window": 9}),
    "asd": ("asd", "always", {}),
    "asd loose": ("asd", "always", {"regret_per_value": 1.0, "max_relaxed": 3}),
    "asd dspark": ("asd", "always", {"variant": "dspark", "regret_per_value": 1.0}),
    "asd no budget": ("asd", "never", {"budget": 0.0}),
    "bild": ("bild", "always", {"rollback": 2.0}),
    "bild tight": ("bild", "always", {"rollback": 0.3}),
    "relaxed_topk": ("relaxed_topk", "always", {}),
    "relaxed_topk three": ("relaxed_topk", "always", {"top_n": 3, "delta": 0.2}),
    "relaxed_topk thinking": ("relaxed_topk", "always", {"span": "thinking", "begin": 1, "end": 2}),
    "relaxed_topk one": ("relaxed_topk", "never", {"top_n": 1}),
    "topp_window": ("topp_window", "warm", {}),
    "topp_window released": ("topp_window", "warm", {"variant": "released", "window": 1}),
    "topp_window no window": ("topp_window", "warm", {"window": 0, "max_candidates": 3}),
    "topp_window released no window": ("topp_window", "warm", {"variant": "released", "window": 0}),
    "block": ("block", "never", {}),
    "block ascend": ("block", "warm", {"variant": "ascend"}),
}
"""Name -> rule, when it relaxes (see `rule_pairs.Pair`), options."""
