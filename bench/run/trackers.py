"""What a command tells W&B: a run for each cell with its metrics, and one for each report with its
tables and figures.

A run's id is the cell's name in the store, so that a later command resumes it. A service that
refuses, hangs or is away costs one warning and at most twice `tracker.timeout` seconds, after which
the command does not try again."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from results.store.errors import one_line

if TYPE_CHECKING:
    import pandas as pd

    from bench.config.cell import Cell
    from bench.config.settings import Settings, Wandb
    from bench.run.requested_cell import RequestedCell
    from results.metrics.summary import Summary

log = logging.getLogger(__name__)
SIGNS = {
    "theta": "θ",
    "threshold": "T",
    "p_drop": "p",
    "heads": "heads",
    "alpha": "α",
    "tau": "τ",
    "rate": "rate",
}
"""Options of rules that a run's name shows, and how; FSD's threshold is its paper's T."""


VERDICTS = "verdicts"
"""Behind a report's name: its table of judged rows."""


class Logbook:
    """The runs of one command. Without a tracker every method does nothing."""

    def __init__(self, settings: Settings) -> None:
        self.is_open = settings.tracker.name != "none"
        self._options = cast("Wandb", settings.tracker.options)
        self._folder = settings.output.dir.absolute()
        self._reports: dict[str, list[str]] = {}

    def group(self, report: str, cells: Iterable[Cell]) -> None:
        """These cells are asked for by a report; of several reports that ask for a cell the first
        names its group, and all are among its tags."""
        for cell in cells:
            reports = self._reports.setdefault(cell.name, [])
            if report not in reports:
                reports.append(report)

    def log_cell(self, folder: RequestedCell, summary: Summary) -> None:
        """A complete cell: its configuration and its metrics."""
        config, made = folder.config() or {}, folder.environment() or {}
        environment = {
            "accelerator": made.get("accelerator"),
            "cpu": (made.get("cpu") or {}).get("model"),
            "torch": (made.get("packages") or {}).get("torch"),
            "git": made.get("git"),
        }
        title, tags = title_of(config)
        reports = self._reports.get(folder.cell.name, [])
        self._log(
            {name: value for name, value in summary.plain().items() if value is not None},
            [],
            id=folder.key,
            name=title,
            job_type="cell",
            group=next(iter(reports), None),
            tags=[*tags, *reports],
            config={**config, "environment": environment},
        )

    def log_report(
        self, name: str, title: str, command: str, files: Sequence[Path], group: str | None = None
    ) -> None:
        """The tables (.csv) and figures (.png) of a report or sweep; `group`: that of its cells, if
        not `name`."""
        self._log(
            {},
            [file for file in files if file.suffix in (".csv", ".png")],
            id=f"report-{name}",
            job_type="report",
            group=group or name,
            config={"name": name, "title": title, "command": command},
        )

    def _log(self, metrics: dict[str, Any], files: Sequence[Path], **about: Any) -> None:
        """Write a run, in a thread: a client that waits for its service has no time-out of its
        own for all that it does."""
        if not self.is_open:
            return
        faults: list[str] = []

        def work() -> None:
            try:
                write_run(self._options, self._folder, metrics, files, about)
            except Exception as error:  # whatever the client raises, the results are in the store
                faults.append(f"{type(error).__name__}: {one_line(error)}")

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        patience = 2 * self._options.timeout  # for the connection, and for the data
        thread.join(patience)
        if thread.is_alive():
            faults.append(f"no answer within {patience:g} s")
        if faults:
            self.is_open = False
            log.warning(
                "wandb: logging disabled from %s onward (%s); all results are in the store",
                about["id"],
                faults[0],
            )


def write_run(
    options: Wandb,
    folder: Path,
    metrics: dict[str, Any],
    files: Sequence[Path],
    about: Mapping[str, Any],
) -> None:
    """A whole run of W&B, online or offline (WANDB_MODE), resumed where the service has one of this
    id; `about` as in `wandb.init`. Raises what the client raises."""
    import pandas as pd
    import wandb

    folder.mkdir(parents=True, exist_ok=True)  # else the client writes into another one
    patience: dict[str, Any] = {}
    for service in ("file_stream", "file_transfer", "graphql"):  # else it tries for hours
        patience[f"x_{service}_retry_max"] = 1
        patience[f"x_{service}_timeout_seconds"] = options.timeout
    settings = wandb.Settings(
        init_timeout=options.timeout,
        silent=True,
        console="off",
        disable_code=True,
        disable_git=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_disable_meta=True,  # the command, and the scheduler's variables
        x_disable_machine_info=True,
        **patience,
    )
    wandb.setup(settings=wandb.Settings(silent=True))  # what it would print before and between runs
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # and of its telemetry
    run = wandb.init(
        project=options.project,
        entity=options.entity,
        resume="allow",
        reinit="create_new",
        dir=os.environ.get("WANDB_DIR") or folder,
        settings=settings,
        **about,
    )
    run.summary.update(metrics)
    figures = {file.stem: wandb.Image(str(file)) for file in files if file.suffix == ".png"}
    tables = {}
    for file in (file for file in files if file.suffix == ".csv"):
        numbers = pd.read_csv(file, dtype=str).fillna("")
        name = f"{file.stem}_numbers" if file.stem in figures else file.stem
        tables[name] = wandb.Table(dataframe=numbers)
        if len(judged := judged_rows(numbers)):
            tables[f"{file.stem}_{VERDICTS}"] = wandb.Table(dataframe=judged)
    if files:
        run.log(figures | tables)
    run.finish()


def judged_rows(numbers: pd.DataFrame) -> pd.DataFrame:
    """A line for each row of a report that was judged: its labels, verdict, distortion and speed
    beside lossless decoding, and the interval of that."""
    import pandas as pd

    if "verdict" not in numbers:
        return pd.DataFrame()
    labels = list(numbers.columns[1 : numbers.columns.get_loc("value_name")])
    whole = numbers.drop_duplicates([*labels, "value_name"])
    judged = whole[whole["verdict"] != ""][[*labels, "verdict", "value", "ci_low", "ci_high"]]
    judged = judged.rename(columns={"value": "equal_d_speed"})
    for name in ("equal_d_distortion", "equal_d_speed_own"):
        beside = whole[whole["value_name"] == name][[*labels, "value"]]
        judged = judged.merge(beside.rename(columns={"value": name}), how="left", on=labels)
    return judged


def title_of(config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Of what cell.yaml holds: a name such as `eagle3-mars released θ=0.9 K=7 mini_gsm t=1`, and
    tags."""
    drafter, rule = config["drafter"], config["rule"]
    task, temperature = config["task"]["name"], f"t={config['decoding']['temperature']:g}"
    shared = [task, config["pair"]["name"], temperature]
    if drafter["name"] == "none":
        return f"ar {task} {temperature}", ["ar", *shared]
    method = rule["name"] if drafter["name"] == "model" else f"{drafter['name']}-{rule['name']}"
    form = [rule["variant"]] if rule.get("variant") else []
    options = [
        f"{sign}={rule[key]:g}"
        for key, sign in SIGNS.items()
        if isinstance(rule.get(key), int | float)
    ]
    is_dynamic = drafter.get("tree") == "dynamic"
    length = drafter["depth"] + 1 if is_dynamic else config["draft"]["length"]
    name = " ".join([method, *form, *options, f"K={length}", task, temperature])
    return name, [method, *form, *shared]
