"""Runs of Weights & Biases, online or offline (WANDB_MODE)."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.run.trackers.base import OpenRun

if TYPE_CHECKING:
    from bench.config.tracking import Wandb
    from bench.run.trackers.base import About, Results

RETRIES, LONGEST_WAIT_S = 2, 5.0
"""Attempts after a failed request and seconds before one; the client's own numbers keep a command waiting for hours."""


class WandbRun(OpenRun):
    """One run, resumed where the service has one of its id."""

    def __init__(self, about: About, options: Wandb) -> None:
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
        self._wandb, self._run = wandb, wandb.init(
            project=options.project, entity=options.entity, id=about.id, name=about.id, group=about.group,
            job_type=about.kind, config=dict(about.config), resume="allow",
            dir=os.environ.get("WANDB_DIR") or about.folder, settings=settings)
        self._run.define_metric("live/prompts", hidden=True)
        self._run.define_metric("live/*", step_metric="live/prompts")

    def live(self, values: Mapping[str, float]) -> None:
        """As described in the base class."""
        self._run.log({f"live/{name}": value for name, value in values.items()})

    def holds(self, digest: str) -> bool:
        """As described in the base class; not known of what was logged offline."""
        return bool(self._run.summary.get("digest") == digest)

    def log(self, results: Results) -> None:
        """As described in the base class."""
        logged: dict[str, Any] = {name: self._wandb.Table(dataframe=frame) for name, frame in results.frames().items()}
        logged |= {name: self._wandb.Image(str(file)) for name, file in results.images.items()}
        if results.page is not None:
            logged["coloured"] = self._wandb.Html(results.page, inject=False)
        if logged:
            self._run.log(logged)
        self._run.summary.update({**results.summary, "digest": results.digest})

    def finish(self) -> None:
        """As described in the base class."""
        self._run.finish()
