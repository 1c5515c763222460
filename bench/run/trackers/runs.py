"""A run of a tracker: opened by its id, given live values while its cell is decoded, then its results once.

W&B and trackio have one interface. What differs is how a run is opened (`_wandb_run`), and that trackio's own Run
prints to stdout, asks the hub who is logged in, and only warns where a row could not be written (`_TrackioRun`)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    import pandas as pd

    from bench.config.settings import ProjectTracker, Wandb

RETRIES, LONGEST_WAIT_S = 2, 5.0
"""Attempts after a failed request and seconds before one; W&B's own numbers keep a command waiting for hours."""


@dataclass(frozen=True, slots=True)
class About:
    """What a run is about.

    id      the same in every command, so that a later one resumes the run: the cell's name in the store, or
            report-NAME
    kind    what it holds
    group   the report that asked for it; None for a command
    config  plain data
    folder  where a client may keep files; None: where it likes
    """

    id: str
    kind: Literal["cell", "report"]
    group: str | None
    config: Mapping[str, Any]
    folder: Path | None = None


@dataclass(frozen=True)
class Results:
    """What a run shows in the end.

    summary  metric -> value
    answers  a row per prompt
    page     HTML of answers with coloured tokens
    tables   name -> CSV file
    images   name -> PNG file
    """

    summary: Mapping[str, Any] = field(default_factory=dict)
    answers: Sequence[Mapping[str, Any]] = ()
    page: str | None = None
    tables: Mapping[str, Path] = field(default_factory=dict)
    images: Mapping[str, Path] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Equal for equal results: a command that finds it in the run logs nothing again."""
        files = {name: hashlib.sha256(file.read_bytes()).hexdigest()
                 for name, file in {**self.tables, **self.images}.items()}
        text = json.dumps([self.summary, self.answers, self.page, files], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def frames(self) -> dict[str, pd.DataFrame]:
        """All tables: the answers, and the files as text."""
        import pandas as pd

        answers = {"answers": pd.DataFrame(self.answers)} if self.answers else {}
        return answers | {name: pd.read_csv(file, dtype=str).fillna("") for name, file in self.tables.items()}


class TrackerRun:
    """A run that is being written. Every method raises what the tracker's client raises.

    tracker  wandb (online or offline, WANDB_MODE) or trackio (a database on this machine, TRACKIO_DIR)
    """

    def __init__(self, tracker: str, about: About, options: ProjectTracker) -> None:
        self._client = import_module(tracker)
        self._run: Any = (_TrackioRun(about, options) if tracker == "trackio"
                          else _wandb_run(about, cast("Wandb", options)))

    def live(self, values: Mapping[str, float]) -> None:
        """How far the cell is: `prompts`, the axis of the others, `tau`, and `tokens_per_s` where it is known."""
        self._run.log({f"live/{name}": value for name, value in values.items()})

    def holds(self, digest: str) -> bool:
        """Whether results of this digest are what was logged last; W&B does not know what was logged offline."""
        return bool(self._run.summary.get("digest") == digest)

    def log(self, results: Results) -> None:
        """Log the results."""
        client = self._client
        logged: dict[str, Any] = {name: client.Table(dataframe=frame) for name, frame in results.frames().items()}
        logged |= {name: client.Image(str(file)) for name, file in results.images.items()}
        if results.page is not None:
            logged["coloured"] = client.Html(results.page, inject=False)
        if logged:
            self._run.log(logged)
        self._run.summary.update({**results.summary, "digest": results.digest})

    def finish(self) -> None:
        """Send what is left and end the run."""
        self._run.finish()


def _wandb_run(about: About, options: Wandb) -> Any:
    """W&B's run of this id, resumed where the service has one."""
    import wandb

    if about.folder is not None:
        about.folder.mkdir(parents=True, exist_ok=True)  # else the client writes into another one
    services = ("file_stream", "file_transfer", "graphql")
    patience: dict[str, Any] = {f"x_{service}_retry_max": RETRIES for service in services}
    patience |= {f"x_{service}_retry_wait_max_seconds": LONGEST_WAIT_S for service in services}
    patience |= {f"x_{service}_timeout_seconds": options.timeout for service in services}
    settings = wandb.Settings(init_timeout=options.timeout, silent=True, console="off", reinit="create_new",
                              disable_code=True, save_code=False, x_disable_stats=True,
                              x_save_requirements=False, x_disable_meta=True, x_disable_machine_info=True,
                              disable_git=True, **patience)  # its metadata hold the command and SLURM_*
    wandb.setup(settings=wandb.Settings(silent=True))  # what it would print before and between runs
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # and of its telemetry
    run = wandb.init(
        project=options.project, entity=options.entity, id=about.id, name=about.id, group=about.group,
        job_type=about.kind, config=dict(about.config), resume="allow",
        dir=os.environ.get("WANDB_DIR") or about.folder, settings=settings)
    run.define_metric("live/prompts", hidden=True)
    run.define_metric("live/*", step_metric="live/prompts")
    return run


class _TrackioRun:
    """A run in trackio's database with W&B's methods; prompts are its steps. Rows are on disk when they are written."""

    def __init__(self, about: About, options: ProjectTracker) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        SQLiteStorage.validate_project_name(options.project)
        self._storage, self._about, self._project, self._step = SQLiteStorage, about, options.project, 0
        self._before = SQLiteStorage.get_run_config(options.project, about.id, run_id=about.id) or {}
        self.summary: dict[str, Any] = dict(self._before.get("summary", {}))

    def log(self, values: Mapping[str, Any]) -> None:
        """Write a row."""
        self._step = int(values.get("live/prompts", values.get("n", self._step)))
        config = {**self._before, **self._about.config, "kind": self._about.kind, "summary": self.summary,
                  "_Group": self._about.group or self._before.get("_Group")}
        row = {name: self._plain(value) for name, value in values.items()}
        self._storage.bulk_log(project=self._project, run=self._about.id, run_id=self._about.id, metrics_list=[row],
                               steps=[self._step], config=config)

    def finish(self) -> None:
        """Write the numbers of the summary as a row, where they are new."""
        if self.summary != self._before.get("summary", {}):
            self.log({name: value for name, value in self.summary.items() if isinstance(value, int | float)})

    def _plain(self, value: Any) -> Any:
        """A number as it is; a table, an image or a page as trackio's Run writes it."""
        if isinstance(value, int | float):
            return value
        if hasattr(value, "_save"):
            value._save(self._project, self._about.id, self._step)
            return dict(value._to_dict())
        return value._to_dict(self._project, self._about.id, self._step)
