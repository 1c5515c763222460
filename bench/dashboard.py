"""`python -m bench.dashboard`: a Weights & Biases workspace and report of logged runs (conf/dashboard.yaml).

Sweeps come from conf/sweep: each has two plots against the key on its figure's axis. Before them stand the Pareto plots
and the controls."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import Field

from bench.commands.command import Options, run_yaml_command
from bench.config.paths import CONF
from results.metrics.catalog import metric
from results.store.errors import one_line
from results.store.files import check_writable, replace_text

TITLE = "Leeway"
MISSING = "bench.dashboard needs wandb-workspaces: pip install 'wandb-workspaces>=0.4.13', or make setup"
CONTROLS = ("tau_gain_relaxed", "tau_gain_greedier", "tau_gain_q")
"""What a gain in τ consists of."""
QUALITY = ("accuracy", "precision")
"""What the Pareto plots show against the speedup of an answer."""


class Dashboard(Options):
    """conf/dashboard.yaml, which explains every field."""

    project: str = Field(min_length=1)
    entity: str | None
    workspace: str | None
    report: str | None
    out: Path | None


class Plot(NamedTuple):
    """A point per run: a metric against a key of the configuration or another metric."""

    x: str
    y: str
    of_config: bool

    @property
    def title(self) -> str:
        return f"{metric(self.y).label} against {self.x if self.of_config else metric(self.x).label}"


class Chapter(NamedTuple):
    """A part of workspace and report.

    group  the runs of the report's plots; None: all cells
    bars   metrics that are shown as bars, by rule
    """

    title: str
    group: str | None
    plots: Sequence[Plot]
    bars: Sequence[str] = ()


def chapters() -> list[Chapter]:
    """The Pareto plots, the controls, and every sweep of conf/sweep."""
    pareto = Chapter("Speed of an answer against quality", None,
                     [Plot("answer_speedup", name, False) for name in QUALITY])
    controls = Chapter("Controls: what a gain in τ consists of", "controls",
                       [Plot("tau_gain", name, False) for name in CONTROLS], CONTROLS)
    sweeps = []
    for file in sorted((CONF / "sweep").glob("*.yaml")):
        section = yaml.safe_load(file.read_text(encoding="utf-8"))["sweep"]
        figure = section["figure"]
        sweeps.append(Chapter(section["title"], f"sweep_{file.stem}",
                              [Plot(figure["x"], figure[side], True) for side in ("left", "right")]))
    return [pareto, controls, *sweeps]


def panels(chapter: Chapter, wr: Any) -> list[Any]:
    """The panels of a chapter, two beside each other."""
    made = [wr.ScatterPlot(title=plot.title, x=wr.Config(plot.x) if plot.of_config else wr.SummaryMetric(plot.x),
                           y=wr.SummaryMetric(plot.y)) for plot in chapter.plots]
    made += [wr.BarPlot(title=metric(name).label, metrics=[wr.SummaryMetric(name)],
                        groupby=wr.Config("rule.name")) for name in chapter.bars]
    for place, panel in enumerate(made):
        panel.layout = wr.Layout(x=12 * (place % 2), y=8 * (place // 2), w=12, h=8)
    return made


def library() -> tuple[Any, Any]:
    """wandb_workspaces.workspaces and .reports.v2. Raises ValueError where they are not installed."""
    try:
        import wandb_workspaces.reports.v2 as reports
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise ValueError(MISSING) from error
    return workspaces, reports


def build(given: Dashboard, entity: str) -> tuple[Any, Any]:
    """The workspace and the report, unsaved; or those at the addresses given, with new contents."""
    ws, wr = library()
    live = ws.Section(name="While it runs", is_open=True, panels=[
        wr.LinePlot(title=title, x="live/prompts", y=[f"live/{name}"])
        for name, title in (("tau", "τ so far"), ("tokens_per_s", "tokens/s of the quality pass"))])
    parts = chapters()
    sections = [live, *(ws.Section(name=part.title, panels=panels(part, wr), is_open=True) for part in parts)]
    workspace = (ws.Workspace(entity=entity, project=given.project, name=TITLE) if given.workspace is None
                 else ws.Workspace.from_url(given.workspace))
    workspace.sections = sections
    report = (wr.Report(entity=entity, project=given.project, title=TITLE) if given.report is None
              else wr.Report.from_url(given.report))
    report.description = "Made by python -m bench.dashboard; every point is a run of tracker=wandb, one per cell."
    report.blocks = [block for part in parts for block in (
        wr.H1(part.title), wr.PanelGrid(runsets=[runset(given, entity, part, wr)], panels=panels(part, wr)))]
    return workspace, report


def runset(given: Dashboard, entity: str, chapter: Chapter, wr: Any) -> Any:
    """The cells of a chapter."""
    from wandb_workspaces.expr import Metric

    filters = [Metric("JobType") == "cell"]
    if chapter.group is not None:
        filters.append(Metric("Group") == chapter.group)
    return wr.Runset(entity=entity, project=given.project, name=chapter.group or "all cells", filters=filters)


def write(given: Dashboard, folder: Path) -> list[str]:
    """Write both as the JSON that saving them would send, but for the project's number, which only the service knows.
    Returns a line for each. Raises ValueError."""
    check_writable(folder, "out")
    lines = []
    for name, made in zip(("workspace", "report"), build(given, ""), strict=True):
        file = folder / f"{name}.json"
        spec = made._to_model().spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        replace_text(file, json.dumps(spec, indent=1, ensure_ascii=False) + "\n")
        lines.append(f"{name}: {file}")
    return lines


def save(given: Dashboard) -> list[str]:
    """Save both and return a line with the address of each. Raises ValueError where the service refuses."""
    library()
    import wandb

    try:
        entity = given.entity or wandb.Api().default_entity or ""
        workspace, report = build(given, entity)
        workspace.save()
        report.save()
        return [f"workspace: {workspace.url}", f"report: {report.url}"]
    except Exception as error:  # whatever the client raises
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise ValueError(f"the dashboard was not saved ({reason}); out=FOLDER writes it without the service") from error


def run(config: Mapping[str, Any]) -> None:
    """Save workspace and report, or write them as files. Raises ValueError, StoreError, one line."""
    given = Dashboard.from_args(config)
    for line in save(given) if given.out is None else write(given, given.out):
        print(line)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong or the service refused it."""
    return run_yaml_command("dashboard", run, argv)


if __name__ == "__main__":
    sys.exit(main())
