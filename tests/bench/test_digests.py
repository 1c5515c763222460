"""The cells of each report's editions, and the prompts of each task whose rows are in the checkout,
by digests.

A line of digests.txt that changes without being meant to changes what a paper's table is of; where
it is meant, the line that is shown goes there. Of a report: how many points, by the names of their
cells without the content of the models and with their numbers of prompts; of a point that waits for
a file, by its overrides. A new option at its default leaves all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bench.config.compose import Composer, composer
from bench.config.paths import CONF
from bench.reports.overrides import takes_rule
from bench.reports.plan import Plan, plan_of, uncollected
from bench.reports.run import load_report
from results.reports.axes import pairs_of
from results.reports.scales import SCALES
from results.reports.spec import Point
from tasks import registry

HELD = (Path(__file__).parent / "digests.txt").read_text(encoding="utf-8").splitlines()
REPORTS = sorted(
    {path.stem for path in (CONF / "report").glob("*.yaml")} - {"workload"}
)  # its prompts are a user's
TASKS = [line.split()[0].removeprefix("task=") for line in HELD if line.startswith("task=")]


@pytest.fixture(scope="module")
def hydra() -> Iterator[Composer]:
    with composer() as composing, uncollected(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.config.engine.vllm_version", lambda: "0.32.0")
        yield composing


def digest(of: list[Any]) -> str:
    text = json.dumps(of, sort_keys=True, ensure_ascii=False, default=str)
    return f"{len(of)} {sha256(text.encode()).hexdigest()[:16]}"


def said(point: Point, plan: Plan) -> list[Any]:
    cell = plan.cells.get(point.coords)
    own = (
        list(point.overrides)
        if cell is None
        else [cell.named(cell.identity({}, {})), cell.n, cell.timed]
    )
    return [*point.coords, *own]


def editions(hydra: Composer, name: str) -> Iterator[str]:
    report = load_report(name, hydra)
    pairs = pairs_of(report.axes)
    for scale in SCALES:
        if scale == "embedded" or pairs[scale]:
            chosen = (
                "pair=smollm2"
                if scale == "real" and pairs["real"] == ["smollm2"]
                else f"scale={scale}"
            )
            rule = ["rule=mars"] if takes_rule(report) else []
            plan = plan_of(report, hydra, [chosen, *rule, "engine.device=cpu", "dry_run=true"])
            yield (
                f"report={name} {chosen} "
                f"{digest([said(point, plan) for point in plan.spec.points()])}"
            )


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_the_cells_of_a_report(name, hydra):
    assert list(editions(hydra, name)) == [
        line for line in HELD if line.startswith(f"report={name} ")
    ]


@pytest.mark.parametrize("name", TASKS)
def test_the_prompts_of_a_task(name, hydra):
    config = hydra.point([f"task={name}"]).config["task"]
    kind = config.pop("name")
    prompts = registry.build(kind, registry.options(kind).model_validate(config)).prompts()
    assert f"task={name} {digest(list(map(asdict, prompts)))}" in HELD
