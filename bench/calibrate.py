"""`python -m bench.calibrate`: the constants of ARC-Decode's bounds for a target (conf/calibrate.yaml)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt

from bench.config.command import run_yaml_command
from bench.config.errors import ConfigError
from bench.config.identity import digest
from bench.config.schema import Engine, Named, Pair, Section, choose, parse, validated
from bench.run.conversation import answer, context
from bench.run.model_pool import load_language_model
from bench.training.resumable import map_resumable, provenance_name
from methods import registry
from methods.decode import Limits
from methods.engine.language_model import LanguageModel
from methods.method import build_method
from methods.rules._arc_constants import VACUOUS, Constants
from methods.sampling import Sampling
from methods.training.rules.arc import Alternative, Bound, BoundSample, fit_buckets, inverse_std, measure
from plots.calibration import calibration
from plots.render import save
from plots.style import style
from tasks import registry as task_registry
from tasks.base import Prompt, TaskOptions

RELEASED = {"trim": 0.005, "slack": 0.7}
THETA = 0.3


class Calibrate(Section):
    """conf/calibrate.yaml, checked."""

    pair: Pair
    task: Named[TaskOptions]
    engine: Engine
    out: Path
    work: Path
    prompts: PositiveInt
    positions: PositiveInt
    max_new_tokens: PositiveInt
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    top_k: int = Field(ge=0)
    alternative: Alternative
    top: int = Field(ge=2)
    delta: float = Field(gt=0, lt=1)
    variant: Literal["paper", "released"]
    buckets: PositiveInt
    finite_sample: Bound
    confidence: float = Field(gt=0, lt=1)
    seed: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Calibrate:
        """Raises ConfigError, one line."""
        found = dict(config)
        found["pair"], found["engine"] = parse(Pair, config, "pair"), parse(Engine, config, "engine")
        found["task"] = choose(config, "task", task_registry.options, task_registry.names(config.get("task")))
        return validated(cls, found, "")

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p)


def measured(settings: Calibrate, target: LanguageModel) -> list[BoundSample]:
    """Positions of the target's own answers, prompt by prompt; those that lie in `work` are not measured again."""
    task = task_registry.build(settings.task.name, settings.task.options)
    none, lossless = registry.drafter("none")(), registry.rule("lossless")()
    method = build_method(target, None, none, lossless, settings.sampling, 1)
    limits = Limits(settings.max_new_tokens, target.eos_ids)
    own = ("positions", "max_new_tokens", "temperature", "top_p", "top_k", "alternative", "top", "seed")
    identity = {"target": target.fingerprint, "task": settings.task.model_dump(mode="json"), "version": task.version,
                **{name: getattr(settings, name) for name in own}}

    def work(prompt: Prompt) -> list[list[float]]:
        one = answer(method, [prompt], limits, lambda p, turn: f"{settings.seed}/calibrate/{p.id}", turns=1)[0]
        if one.error is not None:
            raise ConfigError(f"{prompt.id}: {one.error}")
        rng = np.random.default_rng(int(digest({"id": prompt.id, "seed": settings.seed}), 16))
        before = context(target, prompt, [])
        found = measure(target, before, one.output_ids, settings.sampling, count=settings.positions, top=settings.top,
                        alternative=settings.alternative, rng=rng)
        return [list(asdict(position).values()) for position in found]

    prompts = task.prompts_of("calibration", settings.prompts)
    rows = map_resumable(settings.work / f"{digest(identity)}.jsonl", identity, prompts, work, "calibrating")
    return [BoundSample(*numbers) for _, found in rows for numbers in found]


def constants_of(settings: Calibrate, target: LanguageModel, positions: list[BoundSample]) -> Constants:
    """Raises ValueError, one line, for too few positions."""
    options = RELEASED if settings.variant == "released" else {}
    edges, buckets = fit_buckets(positions, settings.buckets, delta=settings.delta, bound=settings.finite_sample,
                                 confidence=settings.confidence, **options)
    plain = settings.model_dump(mode="json", exclude={"out", "work", "engine", "pair"})
    provenance = {**plain, "dtype": settings.engine.dtype, "n": len(positions), "unit": "nats",
                  "made": datetime.now(UTC).isoformat(timespec="seconds")}
    return Constants(target=provenance_name(target), fingerprint=target.fingerprint, edges=edges, buckets=buckets,
                     inv_std=inverse_std(target.embedding).tolist(), provenance=provenance)


def bounds(found: Constants, positions: list[BoundSample]) -> list[float]:
    """U of each position under the constants of its bucket."""
    place = np.searchsorted(found.edges, [p.entropy for p in positions], side="left")
    parts = [found.buckets[k] for k in place]
    return [min(b.c * p.embedding_distance, b.alpha_kappa * p.margin) for b, p in zip(parts, positions, strict=True)]


def report(found: Constants, js: list[float], bound: list[float], out: Path) -> str:
    lines = [f"{out}: {len(js)} positions, bound holds at {np.mean(np.array(js) <= bound):.1%}"]
    for at, b in enumerate(found.buckets):
        name = f"  bucket {at + 1}: " if found.edges else "  "
        lines.append(f"{name}c {b.c:.3g}  alpha kappa {b.alpha_kappa:.3g}  tau {b.tau:.3g}  (n {b.n})")
    if found.vacuous:
        lines.append(f"  tau is not below ln 2 = {VACUOUS:.3f}: the certified bound on the divergence is vacuous")
    return "\n".join(lines)


def run(config: Mapping[str, Any]) -> None:
    settings = Calibrate.from_config(config)
    if settings.engine.threads:
        torch.set_num_threads(settings.engine.threads)
    target = load_language_model(settings.pair, settings.engine, "target")
    positions = measured(settings, target)
    found = constants_of(settings, target, positions)
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    js, bound = [p.js for p in positions], bounds(found, positions)
    with style():
        figure = calibration(js, bound, max(bucket.tau for bucket in found.buckets), THETA)
        save(figure, settings.out.with_suffix(""))
    print(report(found, js, bound, settings.out))


if __name__ == "__main__":
    sys.exit(run_yaml_command("calibrate", run))
