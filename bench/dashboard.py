"""`python -m bench.dashboard`: a Weights & Biases workspace and report of logged runs
(conf/dashboard.yaml).

Sweeps come from conf/sweep: each has its figure and, for every task, two plots against the key on
the figure's axis, a colour for each draft length. Before them stand the Pareto plots, the controls
and the papers' tables, which hold the printed numbers."""

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
MISSING = (
    "bench.dashboard needs wandb-workspaces: pip install 'wandb-workspaces>=0.4.13', or make setup"
)
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
        return (
            f"{metric(self.y).label} against {self.x if self.of_config else metric(self.x).label}"
        )


class Chapter(NamedTuple):
    """A part of workspace and report.

    tag      of the cells in the report's plots: the name of a report or sweep; None: all cells
    bars     metrics that are shown as bars, by rule
    tables   names of tables that reports logged; images: names of figures
    tasks    of a sweep, each with plots of its own; lengths: the draft lengths that it compares
    """

    title: str
    tag: str | None
    plots: Sequence[Plot] = ()
    bars: Sequence[str] = ()
    tables: Sequence[str] = ()
    images: Sequence[str] = ()
    tasks: Sequence[str] = ()
    lengths: Sequence[int] = ()


def chapters() -> list[Chapter]:
    """The Pareto plots, the controls, the papers' tables of report=all, and every sweep of
    conf/sweep."""
    pareto = Chapter(
        "Speed of an answer against quality",
        None,
        [Plot("answer_speedup", name, False) for name in QUALITY],
    )
    controls = Chapter(
        "Controls: τ against distortion",
        "controls",
        [Plot("distortion", "tau", False)],
        ("distortion",),
    )
    reports = {
        file.stem: yaml.safe_load(file.read_text(encoding="utf-8"))
        for file in sorted(CONF.glob("report/*.yaml"))
    }
    papers = Chapter(
        "The papers' tables beside the printed numbers",
        None,
        tables=[
            f"{name}_paper"
            for name, spec in reports.items()
            if spec.get("published") and not spec.get("on_request")
        ],
    )
    sweeps = []
    for file in sorted(CONF.glob("sweep/*.yaml")):
        whole = yaml.safe_load(file.read_text(encoding="utf-8"))
        section, swept, name = (
            whole["sweep"],
            whole["hydra"]["sweeper"]["params"],
            f"sweep_{file.stem}",
        )
        figure = section["figure"]
        sweeps.append(
            Chapter(
                section["title"],
                name,
                [Plot(figure["x"], figure[side], True) for side in ("left", "right")],
                images=[name],
                tasks=str(swept.get("task", "")).split(",") if "task" in swept else (),
                lengths=list(map(int, filter(None, str(swept.get("draft.length", "")).split(",")))),
            )
        )
    return [pareto, controls, papers, *sweeps]


def panels(chapter: Chapter, wr: Any) -> list[Any]:
    """The panels of a chapter, two beside each other."""
    made = [
        wr.ScatterPlot(
            title=plot.title,
            x=wr.Config(plot.x) if plot.of_config else wr.SummaryMetric(plot.x),
            y=wr.SummaryMetric(plot.y),
        )
        for plot in chapter.plots
    ]
    made += [
        wr.BarPlot(
            title=metric(name).label,
            metrics=[wr.SummaryMetric(name)],
            groupby=wr.Config("rule.name"),
        )
        for name in chapter.bars
    ]
    return side_by_side(made, wr)


def files(chapter: Chapter, wr: Any) -> list[Any]:
    """The tables and figures of a chapter, as its reports logged them."""
    made = [wr.WeavePanelSummaryTable(table_name=name) for name in chapter.tables]
    made += [wr.MediaBrowser(title="Figure", media_keys=[name]) for name in chapter.images]
    return side_by_side(made, wr)


def side_by_side(made: list[Any], wr: Any) -> list[Any]:
    """The panels, two in a row."""
    for place, panel in enumerate(made):
        panel.layout = wr.Layout(x=12 * (place % 2), y=8 * (place // 2), w=12, h=8)
    return made


def library() -> tuple[Any, Any]:
    """wandb_workspaces.workspaces and .reports.v2. Raises ValueError where they are not
    installed."""
    try:
        import wandb_workspaces.reports.v2 as reports
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise ValueError(MISSING) from error
    return workspaces, reports


def build(given: Dashboard, entity: str) -> tuple[Any, Any]:
    """The workspace and the report, unsaved; or those at the addresses given, with new contents."""
    ws, wr = library()
    live = ws.Section(
        name="While it runs",
        is_open=True,
        panels=[
            wr.LinePlot(title=title, x="live/prompts", y=[f"live/{name}"])
            for name, title in (
                ("tau", "τ so far"),
                ("tokens_per_s", "tokens/s of the quality pass"),
            )
        ],
    )
    parts = chapters()
    sections = [
        live,
        *(
            ws.Section(
                name=part.title,
                panels=side_by_side([*files(part, wr), *panels(part, wr)], wr),
                is_open=True,
            )
            for part in parts
        ),
    ]
    workspace = (
        ws.Workspace(entity=entity, project=given.project, name=TITLE)
        if given.workspace is None
        else ws.Workspace.from_url(given.workspace)
    )
    workspace.sections = sections
    report = (
        wr.Report(entity=entity, project=given.project, title=TITLE)
        if given.report is None
        else wr.Report.from_url(given.report)
    )
    report.description = (
        "Made by python -m bench.dashboard; every point is a run of tracker=wandb, one per cell."
    )
    report.blocks = [block for part in parts for block in blocks(part, given, entity, wr)]
    return workspace, report


def blocks(chapter: Chapter, given: Dashboard, entity: str, wr: Any) -> list[Any]:
    """A chapter of the report: what reports logged, then the plots of its cells, for each task
    alone."""
    from wandb_workspaces.expr import Config, Metric

    def runset(name: str, kind: str, *further: Any) -> Any:
        own = (
            []
            if chapter.tag is None
            else [
                Metric("Tags").isin([chapter.tag])
                if kind == "cell"
                else Metric("Group") == chapter.tag
            ]
        )
        return wr.Runset(
            entity=entity,
            project=given.project,
            name=name,
            filters=[Metric("JobType") == kind, *own, *further],
        )

    made = [wr.H1(chapter.title)]
    if chapter.tables or chapter.images:
        made.append(wr.PanelGrid(runsets=[runset("reports", "report")], panels=files(chapter, wr)))
    for task in chapter.tasks or [""] * bool(chapter.plots):
        named = [] if not task else [Config("task.name") == task]
        made += [] if not task else [wr.H2(task)]
        sets = [
            runset(f"K = {length}", "cell", *named, Config("draft.length") == length)
            for length in chapter.lengths
        ]
        made.append(
            wr.PanelGrid(
                runsets=sets or [runset(chapter.tag or "all cells", "cell", *named)],
                panels=panels(chapter, wr),
            )
        )
    return made


def write(given: Dashboard, folder: Path) -> list[str]:
    """Write both as the JSON that saving them would send, but for the project's number, which only
    the service knows. Returns a line for each. Raises ValueError."""
    check_writable(folder, "out")
    lines = []
    for name, made in zip(("workspace", "report"), build(given, ""), strict=True):
        file = folder / f"{name}.json"
        spec = made._to_model().spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        replace_text(file, json.dumps(spec, indent=1, ensure_ascii=False) + "\n")
        lines.append(f"{name}: {file}")
    return lines


def save(given: Dashboard) -> list[str]:
    """Save both and return a line with the address of each. Raises ValueError where the service
    refuses."""
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
        raise ValueError(
            f"the dashboard was not saved ({reason}); out=FOLDER writes it without the service"
        ) from error


def run(config: Mapping[str, Any]) -> None:
    """Save workspace and report, or write them as files. Raises ValueError, StoreError, one
    line."""
    given = Dashboard.from_args(config)
    for line in save(given) if given.out is None else write(given, given.out):
        print(line)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong or the service refused it."""
    return run_yaml_command("dashboard", run, argv)


if __name__ == "__main__":
    sys.exit(main())
