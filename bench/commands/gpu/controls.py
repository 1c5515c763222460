"""Part `controls`: the embedded pair's rules on 64 prompts, in float32 and bfloat16, beside the
same on a CPU.

The CPU's answers are those of results/measured/controls_cpu/controls.json, which the same part
wrote there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from bench.commands.open_cell import OpenCell
from bench.config.paths import PROJECT
from methods.decode import Request, generate

if TYPE_CHECKING:
    from bench.commands.gpu.part import Found, Machine, Row

METHODS = (
    "method=eagle3",
    "method=mars",
    "method=mars_sampling drafter=eagle3",
    "method=fsd",
    "method=dropmatch",
    "method=arc",
    "method=sps",
    "drafter=prompt_lookup rule=lossless",
    "method=medusa",
)
COMMON = ("pair=tiny", "task=mini_chat", "decoding.temperature=1")
PROMPTS, FEW = 64, 4
REFERENCE = PROJECT / "results" / "measured" / "controls_cpu" / "controls.json"
TITLE, ANSWERS = "rules on the embedded pair", "answers"


def measure(machine: Machine, found: Found) -> None:
    """Fill `found`; see the module."""
    count = FEW if machine.tiny and machine.left < 600 else PROMPTS
    known = _reference()
    for method in METHODS:
        for dtype in ("float32",) if machine.tiny else ("float32", "bfloat16"):
            overrides = [*COMMON, *method.split(), f"engine.dtype={dtype}"]
            answers = found.step(
                machine, f"{method}, {dtype}", partial(decoded, machine, overrides, count)
            )
            if answers is not None:
                name = {"method": method, "dtype": dtype}
                found.tables.setdefault(TITLE, []).append(
                    {**name, **_beside(answers, known.get(method))}
                )
                found.tables.setdefault(ANSWERS, []).extend(
                    {**name, **answer} for answer in answers
                )
                found.write()


def decoded(machine: Machine, overrides: Sequence[str], count: int) -> list[Row]:
    """Cycles, tokens and digest of the tokens of each prompt's answer, decoded in one batch."""
    opened = OpenCell.compose([*overrides, f"engine.device={machine.device}"])
    requests: list[Request] = [
        opened.request(prompt) for prompt in opened.task.prompts(count, opened.cell.seed)
    ]
    return [
        {
            "prompt": number,
            "cycles": len(answer.committed),
            "tokens": sum(answer.committed),
            "digest": hashlib.sha256(str(answer.output_ids).encode()).hexdigest()[:16],
        }
        for number, answer in enumerate(generate(opened.method, requests, opened.limits))
    ]


def _reference() -> dict[str, list[Row]]:
    """method -> the CPU's answers in float32; empty where no CPU has been measured."""
    if not REFERENCE.is_file():
        return {}
    rows: list[dict[str, Any]] = json.loads(REFERENCE.read_text(encoding="utf-8"))["tables"].get(
        ANSWERS, []
    )
    return {
        method: [row for row in rows if (row["method"], row["dtype"]) == (method, "float32")]
        for method in {row["method"] for row in rows}
    }


def tau(answers: Sequence[Row]) -> float:
    """Tokens committed ÷ cycles."""
    return float(
        sum(answer["tokens"] for answer in answers)
        / max(1, sum(answer["cycles"] for answer in answers))
    )


def _beside(answers: Sequence[Row], reference: Sequence[Row] | None) -> Row:
    """τ, and how it differs from the reference's: mean difference over prompts with its 95% t
    interval."""
    row: Row = {"prompts": len(answers), "τ": tau(answers)}
    if not reference or len(reference) < len(answers):
        return row
    pairs = [
        (own, other)
        for own, other in zip(answers, reference, strict=False)
        if own["cycles"] and other["cycles"]
    ]
    apart = np.array(
        [own["tokens"] / own["cycles"] - other["tokens"] / other["cycles"] for own, other in pairs]
    )
    error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else 0.0
    half = float(stats.t.ppf(0.975, max(1, len(apart) - 1)) * error)
    return row | {
        "τ on a CPU": tau(reference[: len(answers)]),
        "difference": float(apart.mean()),
        "±": half,
        "same answers": sum(own["digest"] == other["digest"] for own, other in pairs),
    }
