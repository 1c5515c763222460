"""Part `cycle`: the whole loop at 8B shapes.

The weights are random, so what a rule would keep says nothing. How many tokens each cycle keeps is
replayed from answers of a trained pair (models/shapes/accepted.json); the rule still does all of
its work."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from bench.commands.gpu.exact import use_graphs
from bench.commands.gpu.forward import random_head, random_model
from bench.config.paths import PROJECT
from bench.run.profiling import Bursts, Phases
from methods import registry
from methods.decode import Limits, Request, generate
from methods.method import Method, build_method
from methods.rules.base import Rule
from methods.rules.verification import State, Verification
from methods.sampling import Sampling

if TYPE_CHECKING:
    from bench.commands.gpu.part import Found, Machine, Row
    from methods.engine.language_model import LanguageModel
    from methods.rules.walk import Decision, Walk

ACCEPTED = PROJECT / "models" / "shapes" / "accepted.json"
TARGET, DRAFT = "llama31_8b", "llama32_1b"
SAMPLING = Sampling(1.0)
TREE = {"total": 60, "depth": 7, "top_k": 10}
CONTEXT, NEW, LENGTH = 512, 64, 5
CYCLE, SERVED = "where a cycle's time goes", "batches"


@dataclass(frozen=True, slots=True)
class Arm:
    """A method at the shape. `trace`: the cell whose accepted lengths it replays; None keeps what
    the rule keeps."""

    name: str
    drafter: str
    rule: str
    trace: str | None


ARMS = (
    Arm("plain decoding", "none", "lossless", None),
    Arm("EAGLE-3, lossless", "eagle3", "lossless", "eagle3 lossless"),
    Arm("EAGLE-3, MARS", "eagle3", "mars", "eagle3 mars"),
    Arm("EAGLE-3, DropMatch", "eagle3", "dropmatch", "eagle3 dropmatch"),
    Arm("EAGLE-3, ARC-Decode", "eagle3", "arc", "eagle3 arc"),
    Arm("1B draft, lossless", "model", "lossless", "model lossless"),
    Arm("1B draft, FSD", "model", "fsd", "eagle3 fsd"),
    Arm("prompt lookup, lossless", "prompt_lookup", "lossless", "prompt_lookup lossless"),
)


class Replayed:
    """A rule that decides as it always does, and then keeps the recorded number of tokens: the
    first child at each depth. It is otherwise the rule itself."""

    def __init__(self, rule: Rule, accepted: Sequence[int], device: torch.device) -> None:
        self._rule = rule
        self._accepted = torch.tensor(accepted, device=device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rule, name)

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        """As `Rule.start`, with each request's place in the record: rows begin at different
        cycles."""
        places = 7 * torch.arange(len(rows), device=device)
        return {**self._rule.start(rows, device), "replayed": places % len(self._accepted)}

    def decide(self, v: Verification) -> Decision:
        """As `Rule.decide`, with the recorded length."""
        decision = self._rule.decide(v)
        wanted = self._accepted[v.state["replayed"]]
        first = (
            ~v.earlier_siblings.any(-1) if not v.draft.chain else torch.ones_like(decision.accept)
        )
        return replace(decision, accept=first & (v.draft.depth <= wanted[:, None]))

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        """As `Rule.next_state`."""
        own = {name: value for name, value in v.state.items() if name != "replayed"}
        inner = Verification(v.draft, v.logits, v.sampling, v.u, v.hidden_or_none, own)
        inner.notes = v.notes
        place = (v.state["replayed"] + 1) % len(self._accepted)
        return {**self._rule.next_state(inner, path, token), "replayed": place}


def measure(machine: Machine, found: Found) -> None:
    """Fill `found`; see the module."""
    target = found.step(
        machine,
        "weights of the shapes",
        lambda: random_model(machine, "tiny" if machine.tiny else TARGET),
    )
    if target is None:
        return
    ids = [1 + place % (target.vocab_size - 1) for place in range(64 if machine.tiny else CONTEXT)]
    traces = json.loads(ACCEPTED.read_text(encoding="utf-8"))["cells"]
    method = partial(_method, machine, target, {}, traces)
    for graphs in (False,) if machine.tiny else (True, False):
        for arm in ARMS if graphs or machine.tiny else ARMS[:2]:
            found.rows(
                machine,
                f"{arm.name}, graphs {'on' if graphs else 'off'}",
                CYCLE,
                partial(_cycle, machine, arm, method, ids, graphs),
            )
    for arm in ARMS[:2]:
        for rows in (1, 2) if machine.tiny else (1, 4, 16, 64):
            found.rows(
                machine,
                f"{arm.name}, batch {rows}",
                SERVED,
                partial(_served, machine, arm, method, ids, rows),
            )


def _method(
    machine: Machine,
    target: LanguageModel,
    models: dict[str, Any],
    traces: dict[str, Any],
    arm: Arm,
    graphs: bool,
) -> Method:
    """The arm's method; its drafter's model is made once. Raises ModelError, ValueError."""
    if arm.drafter not in models:
        models[arm.drafter] = (
            random_head(machine, "tiny" if machine.tiny else TARGET, target)
            if arm.drafter == "eagle3"
            else random_model(machine, "tiny" if machine.tiny else DRAFT)
            if arm.drafter == "model"
            else None
        )
    options: dict[str, Any] = (
        TREE if arm.drafter == "eagle3" else {"sample": False} if arm.rule == "fsd" else {}
    )
    with TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "dropmatch": {"variant": "naive"},
            "arc": {"constants": _constants(Path(folder), target)},
        }
        rule = registry.rule(arm.rule)(**settings.get(arm.rule, {}))
        drafter = registry.drafter(arm.drafter)(**options)
        method = build_method(target, models[arm.drafter], drafter, rule, SAMPLING, LENGTH)
    use_graphs(method, graphs)
    if arm.trace is None:
        return method
    replayed = Replayed(method.rule, traces[arm.trace]["accepted"], machine.device)
    return replace(method, rule=cast(Rule, replayed))


def _constants(folder: Path, target: LanguageModel) -> Path:
    """Constants for ARC-Decode on random weights: what a decision costs does not depend on them."""
    file = folder / "arc.json"
    file.write_text(
        json.dumps(
            {
                "target": target.source,
                "fingerprint": target.fingerprint,
                "inv_std": [1.0] * target.embedding.shape[1],
                "buckets": [{"c": 0.1, "alpha_kappa": 0.1, "tau": 0.1, "n": 1}],
            }
        ),
        encoding="utf-8",
    )
    return file


def _cycle(
    machine: Machine, arm: Arm, make: Callable[[Arm, bool], Method], ids: list[int], graphs: bool
) -> list[Row]:
    """Milliseconds of a cycle and of its parts. The whole is timed without a probe; the parts, in a
    run of their own, wait for the device after each."""
    method, limits = make(arm, graphs), Limits(16 if machine.tiny else NEW, frozenset())
    generate(method, [Request(ids, "cycle")], limits)  # records graphs, warms up
    answers = [generate(method, [Request(ids, "cycle")], limits)[0] for _ in range(3)]
    whole = statistics.median(answer.decode_s / len(answer.committed) for answer in answers)
    phases = Phases(method.target.device)
    generate(method, [Request(ids, "cycle")], limits, phases)
    parts = {
        name: 1e3 * statistics.median(phases.times[name])
        for name in ("draft", "verify", "accept", "commit")
    }
    host = parts["accept"] + parts["commit"]
    tau = sum(answers[0].committed) / len(answers[0].committed)
    return [
        {
            "arm": arm.name,
            "graphs": "on" if graphs else "off",
            "τ": tau,
            "nodes": round(statistics.mean(answers[0].nodes)),
            "ms": 1e3 * whole,
            **{f"{name} ms": value for name, value in parts.items()},
            "rule and host": host / sum(parts.values()),
            "tokens/s": tau / whole,
        }
    ]


def _served(
    machine: Machine, arm: Arm, make: Callable[[Arm, bool], Method], ids: list[int], rows: int
) -> list[Row]:
    """Tokens/s of a batch, time to the first token, and the 95th percentile of a token's time."""
    method, limits = make(arm, not machine.tiny), Limits(16 if machine.tiny else 64, frozenset())
    requests = [Request(ids, f"served/{row}") for row in range(rows)]
    generate(method, requests, Limits(4, frozenset()))
    answers = generate(method, requests, limits)
    bursts = Bursts(machine.device)
    probed = generate(method, requests, limits, bursts)
    a_token = [
        (late - early) / max(1, tokens)
        for (early, late), tokens in zip(pairwise(bursts.times), probed[0].committed, strict=False)
    ]
    tokens, seconds = (
        sum(sum(answer.committed) for answer in answers),
        sum(answer.decode_s for answer in answers),
    )
    return [
        {
            "arm": arm.name,
            "batch": rows,
            "tokens/s": tokens / seconds,
            "first token ms": 1e3 * rows * answers[0].prefill_s,
            "p95 of a token ms": 1e3 * float(torch.tensor(a_token).quantile(0.95)),
        }
    ]
