"""Generations of the embedded pair with fixed seeds, at temperatures 0 and 1: each rule on a draft model, at 1 also on
EAGLE-3's trees, and each drafter under MARS. `generated` is the only function that knows the decode loop.

Plain products on one thread: another CPU may still round otherwise, and then answers differ from some token on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.config.cell import Cell
from bench.config.compose import Composer, composer
from bench.run.models import ModelPool
from methods.decode import Limits, Request
from methods.likelihood import generate_with_nll
from tests.oracles.frozen import Result, portable, read, renames, write

TASKS = ("mini_gsm", "mini_chat")
NEW = 24
FIXED = ("pair=tiny", "engine.device=cpu", "engine.threads=1", "engine.pack=off", "timed=0", "n=1")
WITH_FILES = ("method=arc", "method=arc_released", "method=autojudge", "method=autojudge_dropmatch",
              "rule=csd rule.answers=models/tiny/answers.json drafter=model")
NO_WEIGHTS = ("hass",)
"""Drafters whose weights are not shipped."""


def cases(hydra: Composer) -> Iterator[str]:
    """The overrides of each case, in one text."""
    for temperature in ("0", "1"):
        at = f"decoding.temperature={temperature}"
        for rule in hydra.options("rule"):
            yield from (f"rule={rule} drafter={drafter} {at}" for drafter in ("model", "eagle3")[:1 + int(temperature)])
        for drafter in hydra.options("drafter"):
            if drafter not in (*NO_WEIGHTS, "model", "eagle3"):
                yield f"rule={'lossless' if drafter == 'none' else 'mars'} drafter={drafter} {at}"
        yield from (f"{method} {at}" for method in WITH_FILES)
        yield f"rule=mars drafter=eagle3 pruning=branches {at}"


def generated(hydra: Composer, pool: ModelPool, overrides: list[str]) -> list[dict[str, Any]] | str:
    """What the cell of these overrides answers to one prompt of each task, decoded in a batch; or why it cannot run."""
    cells = [hydra.candidate([*FIXED, *overrides, f"task={task}"]) for task in TASKS]
    if cells[0].cell is None:
        return cells[0].refused or cells[0].absent
    try:
        method = pool.load(cells[0].cell).method
    except ValueError as error:
        return str(portable(str(error)))
    requests = [Request(method.target.encode([{"role": "user", "content": first(found.cell)}]), f"oracle/{task}")
                for task, found in zip(TASKS, cells, strict=True) if found.cell is not None]
    answers = generate_with_nll(method, requests, Limits(NEW, method.target.eos_ids))
    return [{"tokens": one.output_ids, "committed": one.committed, "accepted": one.accepted, "relaxed": one.relaxed,
             "greedier": one.greedier, "nll": round(one.nll or 0.0, 3)} for one in answers]


def first(cell: Cell) -> str:
    return cell.load_task().prompts(1, 0)[0].turns[0]


def found_now(part: str = "") -> dict[str, Any]:
    """Case -> its answers."""
    pool = ModelPool()
    with composer() as hydra:
        return {case: generated(hydra, pool, case.split()) for case in cases(hydra) if part in case}


def freeze(part: str = "") -> None:
    print(write("golden", found_now(part)))


def compare(part: str = "") -> Result:
    result, found = Result(), found_now(part)
    for case, frozen in read("golden").items():
        if case not in renames()["golden"]["gone"] and part in case:
            result.check(case, frozen, found.get(case))
    return result
