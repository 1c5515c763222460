"""Experiment trackers. A tracker receives complete cells, outside all timing, and never stops a run."""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from results.store.reasons import one_line
from results.store.sample import FailedSample

if TYPE_CHECKING:
    from results.store.compared import Compared
    from results.store.summary import Summary

log = logging.getLogger(__name__)
_given_up = threading.Event()
PER_PROMPT = ("id", "text", "score", "answer", "tokens", "tau", "accept_len", "tokens_per_s", "speedup", "prefill_s",
              "decode_s", "error")


class Tracker(BaseModel, ABC):
    """The options of a tracker, and what it does with them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @abstractmethod
    def log_cell(self, name: str, config: Mapping[str, Any], records: Sequence[Compared | FailedSample],
                 summary: Summary) -> None:
        """One complete cell: its configuration, its prompts, its metrics."""

    @abstractmethod
    def log_files(self, name: str, files: Sequence[Path]) -> None:
        """The rendered tables (.csv) and figures (.png) of a report or sweep."""


class NoTracker(Tracker):
    """Results stay in the store."""

    def log_cell(self, name: str, config: Mapping[str, Any], records: Sequence[Compared | FailedSample],
                 summary: Summary) -> None:
        pass

    def log_files(self, name: str, files: Sequence[Path]) -> None:
        pass


class Wandb(Tracker):
    """Weights & Biases: one run per cell, named after the cell, so that logging it again replaces it."""

    project: str = Field("leeway", min_length=1)
    entity: str | None = None
    timeout: float = Field(60, gt=0)

    def log_cell(self, name: str, config: Mapping[str, Any], records: Sequence[Compared | FailedSample],
                 summary: Summary) -> None:
        def log_run(run: Any, wandb: Any) -> None:
            rows = [per_prompt(record) for record in records]
            for step, row in enumerate(rows):
                run.log({f"prompt/{key}": x for key, x in row.items() if isinstance(x, int | float)}, step=step)
            table = [[row.get(column) for column in PER_PROMPT] for row in rows]
            run.log({"prompts": wandb.Table(columns=list(PER_PROMPT), data=table)})
            run.summary.update({key: value for key, value in summary.plain().items() if value is not None})

        self._guarded(name, dict(config), log_run)

    def log_files(self, name: str, files: Sequence[Path]) -> None:
        def log_run(run: Any, wandb: Any) -> None:
            import pandas as pd

            for file in files:
                if file.suffix == ".png":
                    run.log({file.stem: wandb.Image(str(file))})
                elif file.suffix == ".csv":
                    run.log({file.stem: wandb.Table(dataframe=pd.read_csv(file, dtype=str).fillna(""))})

        self._guarded(name, {}, log_run)

    def _guarded(self, name: str, config: dict[str, Any], log_run: Any) -> None:
        """Log in a thread of its own: an unreachable or hanging service costs `timeout` seconds and one warning, after
        which this process does not try again."""
        if _given_up.is_set():
            return
        failed: list[str] = []

        def work() -> None:
            try:
                import wandb

                settings = wandb.Settings(init_timeout=self.timeout, silent=True, console="off")
                with wandb.init(project=self.project, entity=self.entity, id=name, name=name, config=config,
                                dir=os.environ.get("WANDB_DIR"), settings=settings) as run:
                    log_run(run, wandb)
            except Exception as error:  # whatever the client raises, the results are in the store
                failed.append(f"{type(error).__name__}: {one_line(error)}")

        thread = threading.Thread(target=work, daemon=True, name="wandb")
        thread.start()
        thread.join(2 * self.timeout)  # once for the connection, which gives up by itself, once for the data
        if thread.is_alive():
            failed.append(f"no answer within {2 * self.timeout:g} s")
        if failed:
            _given_up.set()
            log.warning("wandb: logging disabled from %s onward (%s); all results are in the store", name, failed[0])


TRACKERS: dict[str, type[Tracker]] = {"none": NoTracker, "wandb": Wandb}


def per_prompt(record: Compared | FailedSample) -> dict[str, Any]:
    """The row of one prompt: its sample and the ratios of it; metrics without a value are left out."""
    if isinstance(record, FailedSample):
        return {"id": record.id, "error": record.error}
    sample, timed = record.sample, record.timed
    cycles = len(sample.committed)
    row = {name: getattr(sample, name) for name in ("id", "text", "score", "answer")}
    row["tokens"] = len(sample.output_ids)
    if cycles:
        row |= {"tau": sum(sample.committed) / cycles, "accept_len": sum(sample.accepted) / cycles}
    if timed is not None:
        own, base = timed.arms
        row |= {"prefill_s": own.prefill_s, "decode_s": own.decode_s}
        if own.decode_s:
            row["tokens_per_s"] = own.tokens / own.decode_s
        if timed.baseline is not None and own.decode_s and base.decode_s and base.tokens:
            row["speedup"] = row["tokens_per_s"] / (base.tokens / base.decode_s)
    return {key: value for key, value in row.items() if value is not None}
