"""A report run whole on the stand-ins, and the check that nothing of it is missing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import cycle
from unittest.mock import patch

from bench.config.errors import ConfigError
from bench.reports.plan import plan_of, uncollected
from bench.reports.run import load_report, run_reports
from bench.run.session import Session
from results.reports.frame import lay_out
from results.reports.spec import TableSpec
from tests.helpers.rehearsal.models import HUB
from tests.helpers.rehearsal.stand_ins import Rehearsal


@dataclass(frozen=True)
class Outcome:
    """What a rehearsal of one report found.

    points    measured points.
    missing   what should be there and is not.
    left_out  rows without public weights.
    seconds   of the rehearsal.
    """

    points: int
    missing: Sequence[str]
    left_out: Sequence[str]
    seconds: float = 0.0

    def line(self, name: str) -> str:
        """One line for people."""
        without = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        state = f"FAILED: {'; '.join(self.missing[:6])}" if self.missing else "complete"
        more = f" and {len(self.missing) - 6} more" if len(self.missing) > 6 else ""
        return f"{name}: {state}{more}; {self.points} points, {self.seconds:.0f} s{without}"


def rehearsed(name: str, hydra: Rehearsal, overrides: Sequence[str]) -> Outcome:
    """Run a report and look at all of it."""
    began = time.perf_counter()
    try:
        found = _run(name, hydra, [*overrides, "workers=1"])
    except ValueError as error:
        found = Outcome(0, [str(error)], [])
    return replace(found, seconds=time.perf_counter() - began)


def _run(name, hydra, overrides):
    """Raises ValueError where it cannot run at all."""
    own = hydra.command([f"report={name}", *overrides])
    for step in {step.file: step for step in _plan(name, hydra, overrides).steps.values()}.values():
        step.file.parent.mkdir(parents=True, exist_ok=True)
        module, *given = hydra.reduced_step(step, overrides).argv
        run_step(module, given)  # a failure shows as points that still wait for the file
    status = run_reports(own, hydra)
    plan, session = _plan(name, hydra, overrides), Session(hydra.settings(overrides))
    grid = plan.grid(session)
    labels = {label for coords in plan.absent for label in coords}
    left_out = sorted(labels.intersection(HUB["without_weights"]))
    missing = [] if status == 0 else [f"exit status {status}"]
    for coords, held in grid.items():
        lacks = held.summary is None or (held.unjudged and held.summary.judge is None)
        if lacks and set(coords).isdisjoint(left_out):
            missing.append(f"{' / '.join(coords)}: {held.reason or held.unjudged}")
    if not list((session.settings.output.dir / "report").glob(f"{plan.spec.name}.*")):
        missing.append("not drawn")
    if isinstance(plan.spec, TableSpec):
        missing += _empty(plan.spec, grid, left_out)
    return Outcome(sum(held.state == "measured" for held in grid.values()), missing, left_out)


def run_step(module: str, words: Sequence[str]):
    """Run the command of a step. Answers of random models hold no final answers to compare: each
    second one counts as another, so that AutoJudge's labels are of both kinds."""
    with patch("models.train.rules.judge.same_answer", side_effect=cycle((True, False))):
        import_module(f"{module}.__main__").main(list(words))


def _plan(name, hydra, overrides):
    spec = load_report(name, hydra)
    if spec.kind not in ("table", "figure"):
        raise ConfigError(
            f"report={name} rehearse=true: only tables and figures have points to rehearse"
        )
    with uncollected():
        return plan_of(spec, hydra, overrides)


def _empty(spec, grid, left_out):
    """The numbers of the paper without one of ours, and the columns without any."""
    frame = lay_out(spec, grid).frame
    frame = frame[[set(left_out).isdisjoint(row) for row in frame["stub"]]]
    frame = frame[~frame["value_name"].isin(HUB["may_be_empty"])]
    lacking = frame[frame["value"].isna() & frame["published"].notna()]
    yield from (
        f"{' / '.join(stub)}: no {name} beside the paper's"
        for stub, name in zip(lacking["stub"], lacking["value_name"], strict=True)
    )
    filled = frame.groupby("value_name")["value"].count()
    yield from (f"no row has {name}" for name in filled[filled == 0].index)
