"""One Hydra job is one point. It may run in another process (joblib, submitit): all it has to say is in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hydra import main as hydra_main
from omegaconf import DictConfig, OmegaConf

from bench.config.cell import Cell
from bench.config.paths import CONF
from bench.config.settings import Settings
from bench.run.rotation import run_rotation
from bench.run.trace import trace_cells
from results.store.cells import Store


def hydra_job(groups: Sequence[Sequence[Cell]] | None) -> Callable[[], None]:
    """Hydra's entry point for the command line in sys.argv.

    `groups`: the rotations of all points when they run one after the other in this process; the first point of a
    rotation then runs it whole. None: each point runs by itself, beside its own baseline."""
    finished: set[str] = set()

    @hydra_main(config_path=str(CONF), config_name="config", version_base="1.3")
    def job(config: DictConfig) -> None:
        run_point(config, groups, finished)

    return job


def run_point(config: DictConfig, groups: Sequence[Sequence[Cell]] | None, finished: set[str]) -> None:
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    cell, settings = Cell.from_config(plain), Settings.from_config(plain)
    if cell.name in finished:
        return
    group = [cell] if groups is None else next(g for g in groups if cell.name in {c.name for c in g})
    run_cells(group, settings)
    finished.update(one.name for one in group)


def run_cells(rotation: Sequence[Cell], settings: Settings) -> None:
    """Complete one rotation, trace it where that is wanted, and tell the tracker of its cells."""
    store = Store(settings.store.dir)
    run_rotation(rotation, store)
    if settings.trace:
        trace_cells(rotation, store)
    for cell in rotation:
        folder = store.cell(cell.name)
        if (summary := folder.summary()) is not None:
            settings.tracker.options.log_cell(cell.name, folder.config() or {}, folder.samples(), summary)
