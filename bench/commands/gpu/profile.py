"""Part `profile`: a cost profile of this machine (docs/cost.md) from what `forward` and `cycle`
measured.

It measures nothing itself, so any machine can make it from the two files. How well it predicts the
cycles stands beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.commands.gpu import cycle, forward
from bench.config.cost_file import save
from methods import registry
from results.metrics.cost import Costs, Drafting, Linear, Profile

if TYPE_CHECKING:
    from bench.commands.gpu.part import Found, Machine, Row

NEEDED = ("forward", "cycle")
PREDICTED = "cycles, predicted and measured"


def measure(machine: Machine, found: Found) -> None:
    """Fill `found`, and write profile.yaml beside it; see the module."""
    tables: dict[str, list[Row]] = {}
    for name in NEEDED:
        file = found.file.with_name(f"{name}.json")
        if not file.is_file():
            found.skipped.append(
                f"profile: needs {name}; run parts={name} into the same folder first"
            )
            found.write()
            return
        tables |= json.loads(file.read_text(encoding="utf-8"))["tables"]
    found.rows(machine, "profile", PREDICTED, lambda: _saved(found, tables))


def _saved(found: Found, tables: dict[str, list[Row]]) -> list[Row]:
    """Write the profile. Returns how well it predicts the cycles."""
    profile = _profile(found, tables)
    predicted = _predicted(profile, tables)
    save(found.file.with_name("profile.yaml"), profile)
    return predicted


def _rows(tables: dict[str, list[Row]]) -> dict[str, Row]:
    """The cycles of each arm, with graphs where there are such."""
    rows = tables[cycle.CYCLE]
    return {row["arm"]: row for row in sorted(rows, key=lambda row: row["graphs"] == "on")}


def _profile(found: Found, tables: dict[str, list[Row]]) -> Profile:
    rows = tables[forward.TITLE]
    real = any(row["shape"] == cycle.TARGET for row in rows)
    shape, mode, context = (
        (cycle.TARGET, "graphs", cycle.CONTEXT) if real else ("tiny", "eager", 64)
    )
    target: dict[int, dict[int, float]] = {}
    for row in rows:
        if (row["shape"], row["mode"], row["context"]) == (shape, mode, context):
            target.setdefault(row["batch"], {})[row["k"]] = row["ms"] / 1e3
    target = {batch: _rising(seconds) for batch, seconds in target.items()}
    arms = _rows(tables)
    plain = arms[cycle.ARMS[0].name]
    rest = max(0.0, plain["ms"] - plain["accept ms"]) / 1e3 - target[1][1]
    drafts: dict[str, dict[int, Drafting]] = {}
    accept: dict[str, Linear] = {"lossless": Linear(cycle=plain["accept ms"] / 1e3)}
    for arm in cycle.ARMS[1:]:
        if arm.name in arms:
            row = arms[arm.name]
            accept.setdefault(arm.rule, Linear(cycle=row["accept ms"] / 1e3))
            drafts.setdefault(arm.drafter, {1: _drafting(arm, row["draft ms"] / 1e3)})
    title = f"{found.file.parent.name}, {shape} in random weights, this loop with CUDA graphs"
    return Profile(
        title=title,
        sources=["python -m bench.gpu"],
        target=target,
        rest=Linear(cycle=max(0.0, rest)),
        sampled=Costs(drafts=drafts, accept=accept),
    )


def _rising(seconds: dict[int, float]) -> dict[int, float]:
    """More tokens never take less: what falls is noise."""
    return dict(
        zip(
            sorted(seconds),
            np.maximum.accumulate([seconds[count] for count in sorted(seconds)]).tolist(),
            strict=True,
        )
    )


def _forwards(arm: cycle.Arm) -> tuple[int, ...]:
    options: dict[str, Any] = cycle.TREE if arm.drafter == "eagle3" else {}
    drafter = registry.drafter(arm.drafter)(**options)
    return tuple(
        drafter.forwards(
            cycle.LENGTH, cycle.TREE["depth"] + 1 if arm.drafter == "eagle3" else cycle.LENGTH
        )
    )


def _drafting(arm: cycle.Arm, seconds: float) -> Drafting:
    """The seconds of drafting, spread evenly over the forwards of the drafter's model."""
    forwards = _forwards(arm)
    if not forwards:
        return Drafting(cycle=seconds)
    return Drafting(
        cycle=0.0, forwards=dict.fromkeys(sorted(set(forwards)), seconds / len(forwards))
    )


def _predicted(profile: Profile, tables: dict[str, list[Row]]) -> list[Row]:
    """A row for each arm: its cycle by the profile, beside the clock."""
    rows = []
    for arm in cycle.ARMS:
        row = _rows(tables).get(arm.name)
        if row is None:
            continue
        draft = (
            0.0
            if arm.drafter == "none"
            else profile.drafting(arm.drafter, 1, False).seconds(_forwards(arm))
        )
        seconds = (
            draft
            + float(profile.forward(np.array([row["nodes"] + 1]), 1)[0])
            + profile.accepting(arm.rule, False).cycle
            + profile.rest.cycle
        )
        rows.append(
            {
                "arm": arm.name,
                "predicted ms": 1e3 * seconds,
                "measured ms": row["ms"],
                "predicted ÷ measured": 1e3 * seconds / row["ms"],
            }
        )
    return rows
