"""Rules that look along a chain beside their slow versions, in the form of tests/helpers/rule_pairs.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from methods.rules.verification import State, Verification
from tests.helpers import local_reference, path_reference
from tests.helpers.path_reference import Chain


def spent(v: Verification) -> State:
    """Requests that have used up different parts of a budget of 8."""
    return {"spent": torch.linspace(0.0, 8.0, len(v.u), dtype=torch.float64)}


def thinking(v: Verification) -> State:
    """Every second request is inside a thinking span."""
    return {"thinking": torch.arange(len(v.u)) % 2 == 0}


def answered(v: Verification) -> State:
    """Answers that are 1, 2, ... tokens long."""
    return {"answered": torch.arange(len(v.u)) + 1}


def near_top(v: Verification) -> State:
    return thinking(v) | answered(v)


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
        case "near_top":
            plain = {key: value for key, value in options.items() if key not in ("span", "begin", "end")}
            inside = options.get("span") != "thinking" or bool(v.state["thinking"][row])
            return plain | {"answered": int(v.state["answered"][row]), "thinking": inside}
        case "secure_sd":
            name, relaxed = options["relaxed"]["name"], {k: x for k, x in options["relaxed"].items() if k != "name"}
            return {"answered": int(v.state["answered"][row]), "schedule": options.get("schedule", "step"),
                    "start": options.get("start_eta", 0.0), "end": options.get("end_eta", 1.0),
                    "tokens": options.get("tokens", 2), "gamma": options.get("gamma", 1.0),
                    "relaxed": partial(getattr(local_reference, name), **relaxed)}
        case "ensemble":
            return options | {"answered": int(v.state["answered"][row]), "local": local_reference.ensemble}
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
    states = {"asd": spent, "relaxed_topk": thinking, "near_top": near_top, "secure_sd": answered, "ensemble": answered}
    return with_state(states[name]) if name in states else lambda v: v


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
    "near_top": ("near_top", "always", {}),
    "near_top of three": ("near_top", "always", {"threshold": 0.5, "top_n": 3}),
    "near_top of one": ("near_top", "never", {"top_n": 1}),
    "near_top thinking": ("near_top", "always", {"span": "thinking", "begin": 1, "end": 2}),
    "near_top probability": ("near_top", "always", {"by": "probability", "threshold": 0.15}),
    "near_top with protections": ("near_top", "always", {
        "threshold": 0.1, "from_position": 1, "after_tokens": 3, "protected": (0, 4, 7)}),
    "secure_sd": ("secure_sd", "warm", {"relaxed": {"name": "lossy", "alpha": 0.7}, "tokens": 4}),
    "secure_sd linear": ("secure_sd", "warm", {"relaxed": {"name": "ensemble", "w": 0.3}, "schedule": "linear",
                                               "start_eta": 0.1, "end_eta": 0.9, "tokens": 6}),
    "secure_sd power": ("secure_sd", "warm", {"relaxed": {"name": "r_fuzzy", "threshold": 0.1}, "schedule": "power",
                                              "tokens": 8, "gamma": 2.0}),
    "secure_sd strict": ("secure_sd", "never", {"relaxed": {"name": "ensemble", "w": 0.0}, "end_eta": 0.0}),
    "ensemble scheduled": ("ensemble", "warm", {"w": 0.2, "w_first": 1.0, "tokens": 6, "schedule": "linear"}),
    "ensemble scheduled, transformers": ("ensemble", "always", {"w": 0.2, "w_first": 0.9, "tokens": 3,
                                                                "schedule": "step", "variant": "transformers"}),
    "topp_window": ("topp_window", "warm", {}),
    "topp_window released": ("topp_window", "warm", {"variant": "released", "window": 1}),
    "topp_window no window": ("topp_window", "warm", {"window": 0, "max_candidates": 3}),
    "topp_window released no window": ("topp_window", "warm", {"variant": "released", "window": 0}),
    "block": ("block", "never", {}),
    "block ascend": ("block", "warm", {"variant": "ascend"}),
}
"""Name -> rule, when it relaxes (see `rule_pairs.Pair`), options."""
