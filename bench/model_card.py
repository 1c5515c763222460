"""`python -m bench.model_card`: measures the embedded pair and writes its model card, models/tiny/README.md.

Scores come through the ordinary runner (report=laboratory), the physics of margins from bench/physics.py, the
comparison with `transformers` assisted generation from bench/speed.py. Nothing that was measured is written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from safetensors.torch import load_file

from bench.config.cell import validated
from bench.config.compose import composer
from bench.config.settings import Settings
from bench.reports.plan import plan_of
from bench.reports.run import run_reports
from bench.training import margins as physics
from bench.vs_transformers import assisted, of_transformers, stock_generate
from methods import registry
from methods.decode import Limits
from methods.engine.loading import load_model
from methods.method import Method, build_method
from methods.sampling import Sampling
from plots.histogram import values
from plots.render import save
from plots.style import look, panel_grid, style
from results.metrics.intervals import proportion_interval, speedup_interval
from results.reports.spec import TableSpec
from results.store.cells import Store
from tasks.base import Task
from tasks.mini import BENCHMARKS, MiniTask

PAIR = Path("models/tiny")
TEMPLATES = Path(__file__).parent / "training" / "templates"
THETA = 0.9
NEW = 176
SUBSTITUTIONS = 300
DRAFT_LENGTH = 5


def greedy_method(folder: Path) -> Method:
    target = load_model(str(folder))
    return build_method(target, None, registry.drafter("none")(), registry.rule("greedy")(), Sampling(0.0), 1)


def all_margins(method: Method, n: int) -> dict[str, tuple[Task, list[physics.Position]]]:
    """The positions of the answers to `n` test prompts of each task."""
    limits = Limits(NEW, method.target.eos_ids)
    found = {}
    for name in BENCHMARKS:
        task = MiniTask(name)
        answers = physics.answers(method, task, task.prompts(n, 0), limits)
        found[name] = task, [position for one in answers for position in physics.margins(method, one)]
    return found


def margin_table(margins: Mapping[str, tuple[Task, list[physics.Position]]]) -> list[dict[str, Any]]:
    """Per task: positions, share with z2/z1 above theta, count with z1 <= 0."""
    return [{"task": name, "positions": len(positions), "smallest_z1": min(p.z1 for p in positions),
             "low": sum(p.ratio > THETA for p in positions) / len(positions),
             "negative": sum(p.z1 <= 0 for p in positions)} for name, (_, positions) in margins.items()]


def substitution_table(method: Method, margins: Mapping[str, tuple[Task, list[physics.Position]]]) -> dict[str, Any]:
    """How often the answer stays right when the runner-up replaces the top token, at low and at high margin.

    Only answers that were right, only tasks with right-or-wrong scores; low: z2/z1 > theta, high: the rest."""
    limits = Limits(NEW, method.target.eos_ids)
    pools: dict[str, list[tuple[Task, physics.Position]]] = {"low": [], "high": []}
    for task, positions in margins.values():
        if not task.proportion:
            continue
        answers = {id(p.answer): p.answer for p in positions}
        right = {name: task.score(a.prompt, a.texts).value == 1.0 for name, a in answers.items()}
        for position in positions:
            if right[id(position.answer)]:
                pools["low" if position.ratio > THETA else "high"].append((task, position))
    table = {}
    for kind, pool in pools.items():
        chosen = physics.sample(pool, SUBSTITUTIONS, seed=0)
        still = 0
        for task in {id(t): t for t, _ in chosen}.values():
            still += sum(physics.substituted(method, task, [p for t, p in chosen if t is task], limits))
        table[kind] = {"n": len(chosen), "right": still / len(chosen), "ci95": proportion_interval(still, len(chosen))}
    return table


def assisted_table(n: int) -> dict[str, Any]:
    """Stock `transformers` assisted generation on mini_gsm: tokens per target forward, and its gain over `generate`."""
    target, draft = (of_transformers(str(PAIR / part), "float32", "cpu") for part in ("target", "draft"))
    reference = load_model(str(PAIR / "target"))
    eos, forwards = sorted(reference.eos_ids), []
    plain = stock_generate(target, eos, NEW)
    helped = assisted(of_transformers(str(PAIR / "target"), "float32", "cpu"), draft, eos, NEW, DRAFT_LENGTH)
    counted = assisted(target, draft, eos, NEW, DRAFT_LENGTH)
    prompts = [reference.encode([{"role": "user", "content": p.turns[0]}]) for p in MiniTask("mini_gsm").prompts(n, 0)]
    runs = [(helped(ids), plain(ids)) for ids in [prompts[0], *prompts]][1:]
    target.register_forward_hook(lambda *_: forwards.append(1))
    tokens = sum(counted(ids)[0] for ids in prompts)
    (mt, ms), (bt, bs) = (list(zip(*arm, strict=True)) for arm in zip(*runs, strict=True))
    return {"n": n, "length": DRAFT_LENGTH, "threads": torch.get_num_threads(),
            "tokens_per_forward": tokens / len(forwards),
            "speedup": sum(mt) / sum(ms) / (sum(bt) / sum(bs)), "ci95": speedup_interval(mt, ms, bt, bs)}


def parameters(folder: Path) -> int:
    return sum(weight.numel() for weight in load_file(folder / "model.safetensors").values())


def loss_figure() -> Figure:
    figure, (ax,) = panel_grid(1, inches=(6.2, 3.0))
    for i, part in enumerate(("target", "draft")):
        curve = json.loads((PAIR / part / "training.json").read_text())["loss"]
        seen = look(i)
        ax.plot([row["tokens"] / 1e6 for row in curve], [row["loss"] for row in curve], color=seen.colour,
                linestyle=seen.dash, lw=1.1, label=part)
        grown = [row["tokens"] / 1e6 for before, row in pairwise(curve) if row["layers"] > before["layers"]]
        for at in grown:
            ax.axvline(at, color=seen.colour, lw=0.8, ls=":")
    ax.set_yscale("log")
    ax.set_xlabel("training tokens (millions)")
    ax.set_ylabel("loss (nats/token)")
    ax.legend()
    return figure


def margin_figure(positions: list[physics.Position]) -> Figure:
    """The target's own edition of MARS, Figure 5."""
    figure, (a, b, c) = panel_grid(3, inches=(3.2, 2.8))
    values(a, [p.z1 for p in positions], label="top-1 logit z₁", mark=0.0)
    values(b, [p.ratio for p in positions], label="z₂ / z₁", mark=THETA)
    values(c, [p.p2 / p.p1 for p in positions], label="p₂ / p₁", mark=THETA)
    return figure


def measure(n: int, scores: dict[str, Any]) -> dict[str, Any]:
    """All numbers of the card, and its figures in models/tiny/."""
    method = greedy_method(PAIR / "target")
    margins = all_margins(method, n)
    with style():
        every = [position for _, positions in margins.values() for position in positions]
        for name, figure in (("loss", loss_figure()), ("margins", margin_figure(every))):
            for path in save(figure, PAIR / name):
                if path.suffix != ".png":
                    path.unlink()
    parts = {}
    for part in ("target", "draft"):
        training = json.loads((PAIR / part / "training.json").read_text())
        config = json.loads((PAIR / part / "config.json").read_text())
        parts[part] = {"parameters": parameters(PAIR / part), "config": config, "recipe": training["recipe"],
                       "loss": training["loss"][-1]["loss"], "tokens": training["loss"][-1]["tokens"]}
    file = PAIR / "HISTORY.md"
    history = file.read_text() if file.exists() else None
    return {"history": history, "new": NEW, "parts": parts, "scores": scores, "margins": margin_table(margins),
            "margins_n": n, "theta": THETA, "substitution": substitution_table(method, margins),
            "assisted": assisted_table(50)}


def write_card(numbers: dict[str, Any]) -> Path:
    (PAIR / "measured.json").write_text(json.dumps(numbers, indent=1))
    templates = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined,
                            trim_blocks=True, lstrip_blocks=True)
    card = PAIR / "README.md"
    card.write_text(templates.get_template("model_card.md.j2").render(**numbers))
    return card


def scores() -> dict[str, dict[str, Any]]:
    """task -> {"target", "sampled", "draft"} -> summary, through the ordinary runner."""
    with composer() as hydra:
        command = hydra.command(["report=laboratory"], False)
        run_reports(command, hydra)
        settings = Settings.from_config(hydra.point([]).config)
        spec = validated(TableSpec, hydra.section("report", "laboratory"), "report")
        plan = plan_of(spec, hydra, [])
    names = {"target": "target", "target, T = 1": "sampled", "draft": "draft"}
    found: dict[str, dict[str, Any]] = {}
    for (model, task), outcome in plan.grid(Store(settings.store.dir)).items():
        if outcome.summary is None:
            raise SystemExit(f"laboratory: {model} on {task} was not measured: {outcome.reason}")
        found.setdefault(task, {})[names[model]] = outcome.summary.plain()
    return found


def main() -> None:
    print(write_card(measure(60, scores())))


if __name__ == "__main__":
    main()
