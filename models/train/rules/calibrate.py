"""`python -m models.train calibrate`: measure the constants of ARC-Decode's bounds on a target
(conf/calibrate.yaml)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from bench.config.identity import digest
from bench.run.answer import answer, context
from bench.run.models import NativeMethod
from methods.decode import Limits
from methods.method import autoregressive
from methods.rules.arc import VACUOUS, Constants
from methods.sampling import Sampling
from models.train.options import PairOptions
from models.train.rules.bounds import Alternative, BoundSample, fit_buckets, inverse_std, measure
from results.store.errors import redacted_plain
from results.store.files import check_writable_file
from results.store.sample import FailedSample

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from tasks.base import Prompt

RELEASED = {"trim": 0.005, "slack": 0.7}
"""How the released script fits the constants."""


class Calibrate(PairOptions):
    """conf/calibrate.yaml, which explains every field."""

    prompts: PositiveInt
    positions: PositiveInt
    min_new_tokens: PositiveInt
    max_new_tokens: PositiveInt
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    top_k: int = Field(ge=0)
    alternative: Alternative
    top: int = Field(ge=2)
    delta: float = Field(gt=0, lt=1)
    variant: Literal["paper", "released"]
    buckets: PositiveInt
    seed: int
    corpora: dict[str, str]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Calibrate:
        """The typed options of a composed configuration. Raises ValueError, one line."""
        settings = super().from_config(config)
        corpus, task = settings.corpora.get(settings.pair.name), settings.task.name
        if corpus not in (None, task):
            raise ValueError(
                f"task={task}: the paper calibrates pair={settings.pair.name} on {corpus}; give "
                f"task={corpus} (from the hub, or task.path=FILE), or a pair of your own: "
                "pair=local"
            )
        return settings

    @property
    def sampling(self) -> Sampling:
        """How answers are drawn and p is processed."""
        return Sampling(self.temperature, self.top_k, self.top_p)


def measured(settings: Calibrate, target: LanguageModel) -> list[BoundSample]:
    """Positions of the target's own answers, prompt by prompt; those already in `work` are
    reused."""
    task = settings.load_task()
    method = NativeMethod(autoregressive(target, settings.sampling))
    limits = Limits(settings.max_new_tokens, target.eos_ids)
    deciding = (
        "positions",
        "min_new_tokens",
        "max_new_tokens",
        "temperature",
        "top_p",
        "top_k",
        "alternative",
        "top",
        "seed",
    )
    identity = {
        "target": target.fingerprint,
        "task": settings.task.model_dump(mode="json"),
        "version": task.version,
        **{name: getattr(settings, name) for name in deciding},
    }

    def work(prompt: Prompt) -> list[list[float]]:
        turns = answer(
            method, [prompt], limits, lambda p, turn: f"{settings.seed}/calibrate/{p.id}", 1
        )[prompt.id]
        if isinstance(turns, FailedSample):
            raise ValueError(f"task={settings.task.name}, prompt {prompt.id}: {turns.error}")
        ids = turns[0].output_ids
        if len(ids) < settings.min_new_tokens:
            return []
        samples = measure(
            target,
            context(target, prompt, []),
            ids,
            settings.sampling,
            count=settings.positions,
            top=settings.top,
            alternative=settings.alternative,
            rng=np.random.default_rng(int(digest({"id": prompt.id, "seed": settings.seed}), 16)),
        )
        return [list(astuple(sample)) for sample in samples]

    prompts = task.prompts_of("calibration", settings.prompts, settings.seed)
    rows = settings.map_prompts(identity, prompts, work, "calibrating")
    return [BoundSample(*numbers) for _, samples in rows for numbers in samples]


def constants_of(
    settings: Calibrate, target: LanguageModel, positions: Sequence[BoundSample]
) -> Constants:
    """The fitted constants with their provenance. Raises ValueError, one line, for too few
    positions."""
    options = RELEASED if settings.variant == "released" else {}
    edges, buckets = fit_buckets(positions, settings.buckets, delta=settings.delta, **options)
    plain = redacted_plain(
        settings.model_dump(mode="json", exclude={"out", "work", "engine", "pair", "corpora"})
    )
    provenance = {
        **plain,
        "dtype": settings.engine.dtype,
        "n": len(positions),
        "unit": "nats",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    fitted = Constants(
        target=settings.provenance_name(target),
        fingerprint=target.fingerprint,
        edges=edges,
        buckets=buckets,
        inv_std=inverse_std(target.embedding).tolist(),
        provenance=provenance,
    )
    return fitted.model_copy(
        update={"provenance": {**provenance, "coverage": coverage(fitted, positions)}}
    )


def coverage(constants: Constants, positions: Sequence[BoundSample]) -> dict[str, float]:
    """Share of the positions at which each bound holds, and their minimum, which decides (eq. 14).
    Each is fitted to hold at 1 - delta; the minimum of both is then sure to hold at 1 - 2 delta
    alone."""
    places = np.searchsorted(constants.edges, [p.entropy for p in positions], side="left")
    buckets = [constants.buckets[place] for place in places]
    js, emb, logit = np.array(
        [
            (p.js, b.c * p.embedding_distance, b.alpha_kappa * p.margin)
            for b, p in zip(buckets, positions, strict=True)
        ]
    ).T
    named = {"u_emb": emb, "u_logit": logit, "u_min": np.minimum(emb, logit)}
    return {name: round(float(np.mean(js <= bound)), 4) for name, bound in named.items()}


def report(constants: Constants, out: Path) -> str:
    """What is printed at the end: the prompts, how often the bounds hold, and the constants of each
    bucket."""
    made, shares = constants.provenance, constants.provenance["coverage"]
    lines = [
        f"{out}: {made['n']} positions of {made['prompts']} prompts of {made['task']['name']}",
        f"  U_emb holds at {shares['u_emb']:.1%}, U_logit at {shares['u_logit']:.1%}, the smaller "
        f"of both, which decides, at {shares['u_min']:.1%} (sure: 1 - 2 delta = "
        f"{1 - 2 * made['delta']:.0%})",
    ]
    for number, b in enumerate(constants.buckets, start=1):
        name = f"  bucket {number}: " if constants.edges else "  "
        lines.append(
            f"{name}c {b.c:.3g}  alpha kappa {b.alpha_kappa:.3g}  tolerance {b.tau:.3g}  (n {b.n})"
        )
    if constants.vacuous:
        lines.append(
            f"  the tolerance is not below ln 2 = {VACUOUS:.3f}: the bound on the divergence is "
            "vacuous"
        )
    return "\n".join(lines)


def run(config: Mapping[str, Any]) -> None:
    """Measure, fit, write the constants. Raises ValueError, ModelError, TaskError."""
    settings = Calibrate.from_config(config)
    check_writable_file(settings.out, "out")
    target = settings.load_model("target")
    positions = measured(settings, target)
    constants = constants_of(settings, target, positions)
    settings.out.write_text(constants.model_dump_json(indent=1) + "\n", encoding="utf-8")
    print(report(constants, settings.out))
