"""The first prompts of every task, by a hash: of the embedded tasks each split with its reference answers, of the
others those that a checkout can read without the network. `prompts_of_task` and `examples_of` are the only functions
that know the tasks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

from bench.config.compose import composer
from models.tiny.train.texts import examples
from tasks import registry
from tasks.base import TaskError
from tasks.mini import BENCHMARKS, MiniTask
from tests.oracles.frozen import Result, read, renames, write

COUNT = 64
SPLITS = ("train", "calibration", "test")
USED = 200
"""Prompts of an embedded task that a run without n answers."""


def prompts_of_task(name: str, config: dict[str, Any]) -> list[Any]:
    """The prompts of a task that conf/task names, as plain data; why it has none here."""
    options = registry.options(config["name"])
    given = options.model_validate({key: value for key, value in config.items() if key != "name"})
    try:
        return [asdict(prompt) for prompt in registry.build(config["name"], given).prompts(COUNT, 0)]
    except TaskError as error:
        return [f"{name}: {type(error).__name__}"]


def examples_of(name: str) -> Iterator[tuple[str, list[Any]]]:
    """Form of an embedded task -> its examples with their reference answers, and the prompts made of them."""
    for split in SPLITS:
        yield f"{name} {split} examples", [asdict(example) for example in islice(examples(name, split), COUNT)]
        yield f"{name} {split}", [asdict(prompt) for prompt in MiniTask(name).prompts_of(split, COUNT)]
    yield f"{name} test, all", [asdict(prompt) for prompt in MiniTask(name).prompts(USED, 0)]


def found_now(part: str = "") -> dict[str, str]:
    """Name -> hash of the prompts."""
    found = {form: digest(of) for name in BENCHMARKS if part in name for form, of in examples_of(name)}
    with composer() as hydra:
        others = ("prompts", "dataset", "eagle")  # their rows are a user's
        for name in (name for name in hydra.options("task") if part in name and name not in others):
            found[f"task={name}"] = digest(prompts_of_task(name, hydra.point([f"task={name}"]).config["task"]))
    return found


def digest(prompts: list[Any]) -> str:
    text = json.dumps(prompts, sort_keys=True, ensure_ascii=False, default=str)
    return f"{len(prompts)} {hashlib.sha256(text.encode()).hexdigest()[:24]}"


def freeze(part: str = "") -> None:
    print(write("prompts", found_now(part)))


def compare(part: str = "") -> Result:
    result, found = Result(), found_now(part)
    for name, frozen in read("prompts").items():
        if name not in renames()["prompts"]["changed"] and (name in found or not part):
            result.check(name, frozen, found.get(name))
    return result
