"""`python -m bench.dashboard`: a Weights & Biases workspace over logged runs
(conf/dashboard.yaml)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from bench.cli.command import Options, run_yaml_command
from bench.config.paths import CONF
from bench.run.trackers import VERDICTS
from results.metrics.catalog import metric
from results.store.errors import one_line
from results.store.files import check_writable, replace_text

MISSING = (
    "bench.dashboard needs wandb-workspaces: pip install 'wandb-workspaces>=0.4.13', or make setup"
)
CELLS = {
    "Distortion": [("distortion", "tau"), ("distortion", "answer_speedup")],
    "Speed of an answer against quality": [
        ("answer_speedup", "accuracy"),
        ("answer_speedup", "precision"),
    ],
}
"""Section -> the metrics of its plots, a point for each cell."""
JUDGED = ("controls", "controls_chains", "newer_rules", "my_rule", "evidence", "workload")
"""Reports whose tables have a verdict on each rule."""


class Dashboard(Options):
    """conf/dashboard.yaml, which explains every field."""

    project: str = Field(min_length=1)
    entity: str | None
    workspace: str | None
    out: Path | None


def library() -> tuple[Any, Any]:
    """wandb_workspaces.workspaces and .reports.v2. Raises ValueError where they are not
    installed."""
    try:
        import wandb_workspaces.reports.v2 as reports
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise ValueError(MISSING) from error
    return workspaces, reports


def sections(wr: Any) -> dict[str, list[Any]]:
    """Title -> panels: the verdicts, the plots of `CELLS`, and for each sweep of conf/sweep its
    figure and what stands on its axes."""

    def plot(x: Any, y: str) -> Any:
        return wr.ScatterPlot(title=metric(y).label, x=x, y=wr.SummaryMetric(y))

    made = {
        "Verdicts": [wr.WeavePanelSummaryTable(table_name=f"{name}_{VERDICTS}") for name in JUDGED]
    }
    for title, pairs in CELLS.items():
        made[title] = [plot(wr.SummaryMetric(x), y) for x, y in pairs]
    for file in sorted(CONF.glob("sweep/*.yaml")):
        sweep = yaml.safe_load(file.read_text(encoding="utf-8"))["sweep"]
        figure = sweep["figure"]
        made[sweep["title"]] = [
            wr.MediaBrowser(title="Figure", media_keys=[f"sweep_{file.stem}"]),
            *(plot(wr.Config(figure["x"]), figure[side]) for side in ("left", "right")),
        ]
    for panels in made.values():
        for place, panel in enumerate(panels):  # two in a row
            panel.layout = wr.Layout(x=12 * (place % 2), y=8 * (place // 2), w=12, h=8)
    return made


def build(settings: Dashboard, entity: str) -> Any:
    """The workspace, unsaved; or that at the address given, with new contents."""
    ws, wr = library()
    if settings.workspace is None:
        workspace = ws.Workspace(entity=entity, project=settings.project, name="Leeway")
    else:
        workspace = ws.Workspace.from_url(settings.workspace)
    workspace.sections = [
        ws.Section(name=title, panels=panels, is_open=True)
        for title, panels in sections(wr).items()
    ]
    return workspace


def write(settings: Dashboard, folder: Path) -> Path:
    """Write the workspace as the JSON that saving it would send, but for the project's number,
    which only the service knows. Raises ValueError."""
    check_writable(folder, "out")
    spec = build(settings, "")._to_model().spec
    plain = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    file = folder / "workspace.json"
    replace_text(file, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
    return file


def save(settings: Dashboard) -> str:
    """Save the workspace and return its address. Raises ValueError where the service refuses."""
    library()
    import wandb

    try:
        entity = settings.entity or wandb.Api().default_entity or ""
        workspace = build(settings, entity)
        workspace.save()
        return str(workspace.url)
    except Exception as error:  # whatever the client raises
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise ValueError(
            f"the dashboard was not saved ({reason}); out=FOLDER writes it without the service"
        ) from error


def run(config: Mapping[str, Any]) -> None:
    """Save the workspace, or write it as a file. Raises ValueError, StoreError, one line."""
    settings = Dashboard.from_args(config)
    place = save(settings) if settings.out is None else write(settings, settings.out)
    print(f"workspace: {place}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong or the service refused it."""
    return run_yaml_command("dashboard", run, argv)


if __name__ == "__main__":
    sys.exit(main())
