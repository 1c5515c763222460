"""What a command tells its tracker: how far its cells are while they are decoded, then their
results and its reports.

The tracker's client runs in threads, so that a service that is broken, slow or away costs one
warning and a limited time, after which the command does not try again. Nothing is sent while cells
are timed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from bench.run.locks import is_timing
from results.metrics.adds import SoFar
from results.store.cells import Store
from results.store.errors import StoreError, one_line
from results.store.sample import FailedSample

if TYPE_CHECKING:
    import pandas as pd

    from bench.config.cell import Cell
    from bench.config.settings import Settings, Wandb
    from bench.run.requested_cell import RequestedCell
    from results.metrics.summary import Summary
    from results.store.cells import CellFolder
    from results.store.sample import Compared


def row_of(record: Compared | FailedSample) -> dict[str, Any]:
    """The row of one prompt: its sample and the ratios of it; metrics without a value are left
    out."""
    if isinstance(record, FailedSample):
        return {"id": record.id, "error": record.error}
    sample, timed = record.sample, record.timed
    cycles = len(sample.committed)
    row: dict[str, Any] = {
        "id": sample.id,
        "text": "\n\n".join(sample.texts),
        "score": sample.score,
        "answer": sample.answer,
        "tokens": len(sample.output_ids),
    }
    if cycles:
        row |= {"tau": sum(sample.committed) / cycles, "accept_len": sum(sample.accepted) / cycles}
    if timed is not None:
        own, base = timed.runs
        row |= {"prefill_s": own.prefill_s, "decode_s": own.decode_s}
        if own.decode_s:
            row["tokens_per_s"] = own.tokens / own.decode_s
        if timed.baseline is not None and own.decode_s and base.decode_s and base.tokens:
            row["speedup"] = row["tokens_per_s"] / (base.tokens / base.decode_s)
    return {key: value for key, value in row.items() if value is not None}


RETRIES, LONGEST_WAIT_S = 2, 5.0
"""Attempts after a failed request and seconds before one; W&B's own numbers keep a command waiting
for hours."""


@dataclass(frozen=True, slots=True)
class About:
    """What a run is about.

    id      the same in every command, so that a later one resumes the run: the cell's name in the
            store, or report-NAME
    title   what a person reads in place of the id: `mars θ=0.9 K=7 mini_gsm t=1`
    tags    method, task, pair, temperature, and each report of this command that shows the cell
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
    title: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Results:
    """What a run shows in the end.

    summary  metric -> value
    answers  a row per prompt
    tables   name -> CSV file
    images   name -> PNG file
    """

    summary: Mapping[str, Any] = field(default_factory=dict)
    answers: Sequence[Mapping[str, Any]] = ()
    tables: Mapping[str, Path] = field(default_factory=dict)
    images: Mapping[str, Path] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Equal for equal results: a command that finds it in the run logs nothing again."""
        files = {
            name: hashlib.sha256(file.read_bytes()).hexdigest()
            for name, file in {**self.tables, **self.images}.items()
        }
        text = json.dumps([self.summary, self.answers, files], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def frames(self) -> dict[str, pd.DataFrame]:
        """All tables: the answers, and the files as text."""
        import pandas as pd

        answers = {"answers": pd.DataFrame(self.answers)} if self.answers else {}
        return answers | {
            name: pd.read_csv(file, dtype=str).fillna("") for name, file in self.tables.items()
        }


class TrackerRun:
    """A run of W&B that is being written, online or offline (WANDB_MODE). Every method raises what
    the client raises."""

    def __init__(self, about: About, options: Wandb) -> None:
        self._run: Any = _wandb_run(about, options)

    def live(self, values: Mapping[str, float]) -> None:
        """How far the cell is: `prompts`, the axis of the others, `tau`, and `tokens_per_s` where
        it is known."""
        self._run.log({f"live/{name}": value for name, value in values.items()})

    def holds(self, digest: str) -> bool:
        """Whether results of this digest are what was logged last; W&B does not know what was
        logged offline."""
        return bool(self._run.summary.get("digest") == digest)

    def log(self, results: Results) -> None:
        """Log the results."""
        import wandb

        logged: dict[str, Any] = {
            name: wandb.Table(dataframe=frame) for name, frame in results.frames().items()
        }
        logged |= {name: wandb.Image(str(file)) for name, file in results.images.items()}
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
    settings = wandb.Settings(
        init_timeout=options.timeout,
        silent=True,
        console="off",
        reinit="create_new",
        disable_code=True,
        save_code=False,
        x_disable_stats=True,
        x_save_requirements=False,
        x_disable_meta=True,
        x_disable_machine_info=True,
        disable_git=True,
        **patience,
    )  # its metadata hold the command and SLURM_*
    wandb.setup(settings=wandb.Settings(silent=True))  # what it would print before and between runs
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # and of its telemetry
    run = wandb.init(
        project=options.project,
        entity=options.entity,
        id=about.id,
        name=about.title or about.id,
        group=about.group,
        tags=about.tags,
        job_type=about.kind,
        config=dict(about.config),
        resume="allow",
        dir=os.environ.get("WANDB_DIR") or about.folder,
        settings=settings,
    )
    run.define_metric("live/prompts", hidden=True)
    run.define_metric("live/*", step_metric="live/prompts")
    return run


log = logging.getLogger(__name__)
EVERY_S = 5.0
"""Seconds between two looks at the cells that are being decoded."""
MOST_OPEN = 8
"""Runs that are kept open for what comes; the one that was opened first is ended before another is
opened."""


class Logbook:
    """The runs of one command. Without a tracker every method does nothing."""

    def __init__(self, settings: Settings) -> None:
        self._name, self._store = settings.tracker.name, settings.store.dir
        self._folder = settings.output.dir.absolute()
        self._options = cast("Wandb", settings.tracker.options)
        self._groups: dict[str, list[str]] = {}
        self._open: dict[str, TrackerRun] = {}
        self._given_up = threading.Event()

    def group(self, report: str, cells: Iterable[Cell]) -> None:
        """These cells are asked for by a report; of several reports that ask for a cell the first
        names its group, and all are among its tags."""
        for cell in cells:
            if report not in (known := self._groups.setdefault(cell.name, [])):
                known.append(report)

    @property
    def is_open(self) -> bool:
        """Whether a tracker is asked for and has not failed."""
        return self._name != "none" and not self._given_up.is_set()

    @contextmanager
    def following(self, cells: Sequence[Cell]) -> Iterator[None]:
        """Log how far these cells are while the body runs."""
        if not self.is_open:
            yield
            return
        store, ended = Store(self._store), threading.Event()
        seen: dict[str, tuple[SoFar, float | None]] = {
            name: (so_far(store.cell(name)), None)
            for name in dict.fromkeys(cell.name for cell in cells)
        }
        thread = self._start("progress", lambda: self._follow(store, seen, ended))
        try:
            yield
        finally:
            ended.set()
            self._await("progress", thread)

    def _follow(
        self, store: Store, seen: dict[str, tuple[SoFar, float | None]], ended: threading.Event
    ) -> None:
        """Log each cell that has more answers than at the look before, whoever decodes it, here or
        on other machines, until `ended`, but not while something is timed on this machine."""
        last = False
        while not last:
            last = ended.wait(EVERY_S)
            if is_timing() and not last:
                continue
            for name, (before, at) in seen.items():
                folder = store.cell(name)
                now, current = time.monotonic(), so_far(folder)
                if current.answers <= before.answers or current.tau is None:
                    continue
                values = {"prompts": float(current.answers), "tau": current.tau}
                if at is not None:
                    values["tokens_per_s"] = (current.tokens - before.tokens) / (now - at)
                seen[name] = current, now
                self._run(self._about(folder)).live(values)

    def log_cell(self, folder: RequestedCell, summary: Summary) -> None:
        """A complete cell: its configuration, its metrics and its answers."""

        def results() -> Results:
            metrics = {name: value for name, value in summary.plain().items() if value is not None}
            return Results(metrics, [row_of(record) for record in folder.compared()])

        self._log(folder.key, lambda: self._about(folder), results)

    def log_report(
        self, name: str, title: str, command: str, files: Sequence[Path], group: str | None = None
    ) -> None:
        """The tables (.csv) and figures (.png) of a report or sweep; `group`: that of its cells, if
        not `name`."""
        kinds = {
            suffix: {file.stem: file for file in files if file.suffix == suffix}
            for suffix in (".csv", ".png")
        }
        tables = {
            f"{stem}_numbers" if stem in kinds[".png"] else stem: file
            for stem, file in kinds[".csv"].items()
        }
        about = About(
            f"report-{name}",
            "report",
            group or name,
            {"name": name, "title": title, "command": command},
            self._folder,
        )
        self._log(about.id, lambda: about, lambda: Results(tables=tables, images=kinds[".png"]))

    def _about(self, folder: CellFolder) -> About:
        config, reports = folder.config() or {}, self._groups.get(folder.key, [])
        made = folder.environment() or {}
        environment = {
            "accelerator": made.get("accelerator"),
            "cpu": (made.get("cpu") or {}).get("model"),
            "torch": (made.get("packages") or {}).get("torch"),
            "git": made.get("git"),
        }
        title, tags = title_of(config)
        return About(
            folder.key,
            "cell",
            next(iter(reports), None),
            {**config, "environment": environment},
            self._folder,
            title,
            (*tags, *reports),
        )

    def _run(self, about: About) -> TrackerRun:
        """The open run of this id, or a new one."""
        if about.id not in self._open:
            while len(self._open) >= MOST_OPEN:
                self._open.pop(next(iter(self._open))).finish()
            self._open[about.id] = TrackerRun(about, self._options)
        return self._open[about.id]

    def _log(self, what: str, about: Callable[[], About], results: Callable[[], Results]) -> None:
        """Log results and end their run."""

        def work() -> None:
            run, made = self._run(about()), results()
            if not run.holds(made.digest):
                run.log(made)
            self._open.pop(what).finish()

        if self.is_open:
            self._await(what, self._start(what, work))

    def _start(self, what: str, work: Callable[[], None]) -> threading.Thread:
        """Do the work in a thread of its own; the first failure ends all logging."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # whatever the client raises, the results are in the store
                self._give_up(what, f"{type(error).__name__}: {one_line(error)}")
                self._abandon()

        thread = threading.Thread(target=guarded, daemon=True, name=f"{self._name} {what}")
        thread.start()
        return thread

    def _await(self, what: str, thread: threading.Thread) -> None:
        patience = (
            2 * self._options.timeout
        )  # once for the connection, which gives up by itself, once for the data
        thread.join(patience)
        if thread.is_alive():
            self._give_up(what, f"no answer within {patience:g} s")

    def _abandon(self) -> None:
        """End the runs that are open, so that a later command of this process can resume them."""
        while self._open:
            with suppress(Exception):  # the reason was given
                self._open.popitem()[1].finish()

    def _give_up(self, what: str, reason: str) -> None:
        if not self._given_up.is_set():
            self._given_up.set()
            log.warning(
                "%s: logging disabled from %s onward (%s); all results are in the store",
                self._name,
                what,
                reason,
            )


SIGNS = {
    "theta": "θ",
    "threshold": "T",
    "p_drop": "p",
    "heads": "heads",
    "alpha": "α",
    "tau": "τ",
    "rate": "rate",
}
"""Options of rules that a title shows, and how; FSD's threshold is its paper's T."""


def title_of(config: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Of what cell.yaml holds: a title such as `eagle3-mars released θ=0.9 K=7 mini_gsm t=1`, and
    tags."""
    drafter, rule = config.get("drafter") or {}, config.get("rule") or {}
    pair, task = ((config.get(part) or {}).get("name", "") for part in ("pair", "task"))
    temperature = f"t={(config.get('decoding') or {}).get('temperature', 0):g}"
    if drafter.get("name", "none") == "none":
        return f"ar {task} {temperature}", tuple(filter(None, ("ar", task, pair, temperature)))
    method = (
        rule.get("name", "")
        if drafter["name"] == "model"
        else f"{drafter['name']}-{rule.get('name', '')}"
    )
    form = [str(rule["variant"])] if rule.get("variant") else []
    shown = [
        f"{sign}={rule[key]:g}"
        for key, sign in SIGNS.items()
        if isinstance(rule.get(key), int | float)
    ]
    length = (config.get("draft") or {}).get("length")
    if drafter.get("tree") == "dynamic":
        length = drafter.get("depth", 0) + 1
    return (
        " ".join([method, *form, *shown, f"K={length}", task, temperature]),
        tuple(filter(None, (method, *form, task, pair, temperature))),
    )


def so_far(folder: CellFolder) -> SoFar:
    """The answers in a folder; none in one that cannot be read, which the pass that needs it
    reports."""
    try:
        return SoFar.of(folder.good_samples())
    except StoreError:
        return SoFar()
