"""`python -m bench.train_judge`: a classifier of draft tokens for AutoJudge or Judge (conf/train_judge.yaml)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError
from rich.console import Console
from rich.progress import track

from bench.config.command import run_yaml_command
from bench.config.errors import ConfigError
from bench.config.identity import digest
from bench.config.schema import Engine, Named, Pair, Section, choose, parse, validated
from bench.run.model_pool import load_language_model
from bench.training.label_mining import Miner
from bench.training.resumable import map_resumable, provenance_name
from methods import registry
from methods.decode import Limits
from methods.engine.language_model import LanguageModel
from methods.method import build_method
from methods.rules._classifier import Classifier, Features
from methods.sampling import Sampling
from methods.training.rules.judge import Labelled, Trained, features, train
from tasks import registry as task_registry
from tasks.base import TaskOptions


class TrainJudge(Section):
    """conf/train_judge.yaml, checked."""

    pair: Pair
    task: Named[TaskOptions]
    engine: Engine
    kind: Literal["autojudge", "judge"]
    labels: Path | None
    features: Features
    out: Path
    work: Path
    prompts: PositiveInt
    most: PositiveInt
    max_new_tokens: PositiveInt | None
    held_out: float = Field(gt=0, lt=1)
    iterations: PositiveInt
    seed: NonNegativeInt

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TrainJudge:
        """Raises ConfigError, one line."""
        found = dict(config)
        found["pair"], found["engine"] = parse(Pair, config, "pair"), parse(Engine, config, "engine")
        found["task"] = choose(config, "task", task_registry.options, task_registry.names(config.get("task")))
        if found.get("kind") == "judge":
            found["features"] = "target"
        return validated(cls, found, "")


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)
    group: str
    ids: list[NonNegativeInt] = Field(min_length=1)
    important: Literal[0, 1]


def read_labels(path: Path) -> list[Labelled]:
    """Labels from a file. Raises ConfigError, one line."""
    if not path.is_file():
        raise ConfigError(f"labels={path}: no such file")
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = _Row.model_validate_json(line)
        except ValidationError as error:
            raise ConfigError(f"labels={path}: line {number}: {error.errors()[0]['msg']}; a line is "
                              '{"group": "prompt", "ids": [token ids], "important": 0 or 1}') from error
        found.append(Labelled(row.group, row.ids, row.important))
    return found


def mined(settings: TrainJudge, target: LanguageModel, draft: LanguageModel) -> list[Labelled]:
    """Labels from the pair's own answers, prompt by prompt; those that lie in `work` are not made again."""
    task = task_registry.build(settings.task.name, settings.task.options)
    limit = settings.max_new_tokens or settings.task.options.max_new_tokens
    greedy = build_method(target, None, registry.drafter("none")(), registry.rule("greedy")(), Sampling(0.0), 1)
    miner = Miner(greedy, draft, task, Limits(limit, target.eos_ids, task.stop), settings.most)
    identity = {"target": target.fingerprint, "draft": draft.fingerprint, "limit": limit, "most": settings.most,
                "task": settings.task.model_dump(mode="json"), "version": task.version}
    prompts = task.prompts_of("train", settings.prompts)
    rows = map_resumable(settings.work / f"{digest(identity)}.jsonl", identity, prompts, miner, "mining labels")
    return [Labelled(name, row["ids"], row["important"]) for name, found in rows for row in found]


def classifier(settings: TrainJudge, target: LanguageModel, draft: LanguageModel | None,
               labels: list[Labelled]) -> Classifier:
    """Features of all labelled tokens, and the classifier on them. Raises ValueError, one line."""
    models = (target, draft if settings.features == "both" else None)
    rows = track(labels, "features", console=Console(stderr=True), disable=not sys.stderr.isatty())
    x = np.stack([features(*models, label.ids) for label in rows])
    y = np.array([label.important for label in labels])
    found: Trained = train(x, y, [label.group for label in labels], weighted=settings.kind == "judge",
                           share=settings.held_out, seed=settings.seed, iterations=settings.iterations)
    provenance = {**settings.model_dump(mode="json", exclude={"out", "work", "engine", "pair", "kind", "features"}),
                  "dtype": settings.engine.dtype, "n": len(labels), "important": int(y.sum()), "c": found.c,
                  "auc": found.auc, "n_train": found.train, "n_held_out": found.held_out,
                  "made": datetime.now(UTC).isoformat(timespec="seconds")}
    other = {} if models[1] is None else {"draft": provenance_name(draft), "draft_fingerprint": draft.fingerprint}
    return Classifier(kind=settings.kind, target=provenance_name(target), fingerprint=target.fingerprint, **other,
                      features=settings.features, mean=found.mean, scale=found.scale, coef=found.coef,
                      intercept=found.intercept, thresholds=found.thresholds, provenance=provenance)


def run(config: Mapping[str, Any]) -> None:
    settings = TrainJudge.from_config(config)
    if settings.kind == "judge" and settings.labels is None:
        raise ConfigError("kind=judge learns from labels that people made: give labels=FILE")
    if settings.engine.threads:
        torch.set_num_threads(settings.engine.threads)
    needs_draft = settings.labels is None or settings.features == "both"
    labels = None if settings.labels is None else read_labels(settings.labels)
    target = load_language_model(settings.pair, settings.engine, "target")
    draft = load_language_model(settings.pair, settings.engine, "draft") if needs_draft else None
    found = classifier(settings, target, draft, mined(settings, target, draft) if labels is None else labels)
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(json.dumps(found.model_dump(), indent=None) + "\n", encoding="utf-8")
    told = found.provenance
    print(f"{settings.out}: {told['n']} tokens, {told['important']} important; held-out ROC-AUC {told['auc']:.3f} "
          f"(n {told['n_held_out']}), C {told['c']:.3g}\n  thresholds to try: "
          + ", ".join(f"{t:.3g}" for t in found.thresholds[1::5]))


if __name__ == "__main__":
    sys.exit(run_yaml_command("train_judge", run))
