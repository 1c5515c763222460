"""`python -m models.tiny.train card`: measure the embedded pair and write its model card, models/tiny/README.md.

Scores come from the ordinary runner (report=laboratory), margins from bench/training/margins.py, the comparison with
`transformers` assisted generation from bench/commands/arms.py. Every number on the page is measured and kept in
models/tiny/measured.json; --render writes the page from that file without measuring."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file

from bench.commands.arms import assisted, stock, stock_generate
from bench.commands.command import run_command
from bench.reports.run import report_grid
from bench.training.cards import render
from bench.training.margins import certainty, margins, substitution_table
from methods.decode import Limits
from methods.engine.loading import load_model
from methods.method import autoregressive
from plots import training_curves
from results.metrics.delta import clocked_interval
from results.store.reasons import Arguments
from tasks.mini import BENCHMARKS, MiniTask

TINY = Path("models", "tiny")
NUMBERS = TINY / "measured.json"
TEMPLATE = Path(__file__).parent / "templates" / "model_card.md.j2"
THETA = 0.9
"""Positions with z2/z1 above it have a low margin: MARS' default threshold."""
NEW = 176
"""New tokens of an answer at most."""
DRAFT_LENGTH = 5
PROMPTS, ASSISTED_PROMPTS, SUBSTITUTIONS = 60, 50, 300


def assisted_table(n: int) -> dict[str, Any]:
    """Stock `transformers` assisted generation on mini_gsm: tokens per target forward, and its gain over `generate`."""
    reference = load_model(str(TINY / "target"))
    target, draft = stock(reference), stock(load_model(str(TINY / "draft")))
    eos, forwards = sorted(reference.eos_ids), []
    plain = stock_generate(target, eos, NEW)
    helped = assisted(stock(reference), draft, eos, NEW, DRAFT_LENGTH)
    counted = assisted(target, draft, eos, NEW, DRAFT_LENGTH)
    prompts = [reference.encode([{"role": "user", "content": p.turns[0]}]) for p in MiniTask("mini_gsm").prompts(n)]
    runs = [(helped(ids), plain(ids)) for ids in [prompts[0], *prompts]][1:]
    target.register_forward_hook(lambda *_: forwards.append(1))
    tokens = sum(counted(ids)[0] for ids in prompts)
    (mt, ms), (bt, bs) = (list(zip(*arm, strict=True)) for arm in zip(*runs, strict=True))
    return {"n": n, "length": DRAFT_LENGTH, "threads": torch.get_num_threads(),
            "tokens_per_forward": tokens / len(forwards),
            "speedup": sum(mt) / sum(ms) / (sum(bt) / sum(bs)), "ci95": clocked_interval(mt, ms, bt, bs)}


def parts() -> dict[str, dict[str, Any]]:
    """Sizes and training of target and draft; draws the loss curves."""
    table, losses = {}, {}
    for part in ("target", "draft"):
        training = json.loads((TINY / part / "training.json").read_text())
        weights = load_file(TINY / part / "model.safetensors").values()
        losses[part] = training["loss"]
        table[part] = {"parameters": sum(weight.numel() for weight in weights), "recipe": training["recipe"],
                       "config": json.loads((TINY / part / "config.json").read_text()),
                       "loss": training["loss"][-1]["loss"], "tokens": training["loss"][-1]["tokens"]}
    training_curves.pair_losses(losses, TINY / "loss.png")
    return table


def measure(n: int, scores: dict[str, Any]) -> dict[str, Any]:
    """All numbers of the card; draws its figures into models/tiny/."""
    method = autoregressive(load_model(str(TINY / "target")))
    limits = Limits(NEW, method.target.eos_ids)
    tasks = {name: MiniTask(name) for name in BENCHMARKS}
    measured = {name: margins(method, task, task.prompts(n), limits) for name, task in tasks.items()}
    every = pd.concat([one.positions for one in measured.values()])
    training_curves.margins(list(every.z1), list(every.ratio), list(every.p2 / every.p1), THETA, TINY / "margins.png")
    return {"new": NEW, "parts": parts(), "scores": scores, "margins_n": n,
            "margins": [{"task": name, **certainty(one.positions, THETA)} for name, one in measured.items()],
            "theta": THETA,
            "substitution": substitution_table(method, list(measured.values()), THETA, limits, SUBSTITUTIONS),
            "assisted": assisted_table(ASSISTED_PROMPTS)}


def write_card(numbers: dict[str, Any]) -> Path:
    """Write models/tiny/README.md; HISTORY.md beside it, if there is one, becomes a section."""
    file = TINY / "HISTORY.md"
    history = file.read_text(encoding="utf-8") if file.exists() else None
    card = TINY / "README.md"
    card.write_text(render(TEMPLATE, history=history, **numbers), encoding="utf-8")
    return card


def scores() -> dict[str, dict[str, Any]]:
    """task -> {"target", "sampled", "draft"} -> summary, from the ordinary runner. Raises ValueError."""
    names = {"target": "target", "target, T = 1": "sampled", "draft": "draft"}
    found: dict[str, dict[str, Any]] = {}
    for (model, task), outcome in report_grid("laboratory").items():
        if outcome.summary is None:
            raise ValueError(f"report=laboratory: {model} on {task} was not measured: {outcome.reason}")
        found.setdefault(task, {})[names[model]] = outcome.summary.plain()
    return found


def run(render_only: bool) -> None:
    """Measure unless `render_only`, then write the page. Raises ValueError, ModelError."""
    if render_only and not NUMBERS.exists():
        raise ValueError(f"--render: {NUMBERS} does not exist; run the command without --render to measure it")
    if not render_only:
        numbers = measure(PROMPTS, scores())
        NUMBERS.write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    print(write_card(json.loads(NUMBERS.read_text(encoding="utf-8"))))


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(prog="python -m models.tiny.train card", description=__doc__.split("\n\n")[0])
    parser.add_argument("--render", action="store_true", help="write the page from models/tiny/measured.json")
    args = parser.parse_args(argv)
    return run_command(lambda: run(args.render))
