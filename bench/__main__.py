"""`python -m bench`: compose and check every point of the command, run what is missing, print the results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.config.command import run_command
from bench.config.compose import Command, composer
from bench.config.help import help_text
from bench.config.hydra_internals import arguments, asks_hydra, run_hydra


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all done, 1 a cell failed (the last lines name it), 2 the command is wrong, 130 interrupted."""
    given = list(sys.argv[1:] if argv is None else argv)
    sys.argv[1:] = given  # what environment.json and the pages record as the command
    return run_command(lambda: bench(given))


def bench(argv: Sequence[str]) -> int:
    """Answer a command line: help, a report, or the points of a command or sweep. Raises ConfigError."""
    args = arguments(argv)
    if args.help:
        print(help_text())
        return 0
    if asks_hydra(args):
        run_hydra(lambda _: None, "config", args, argv)
        return 0
    with composer(args.config_dir) as hydra:
        command = hydra.command(args.overrides, args.multirun)
        if command.report is not None:
            from bench.reports.run import run_reports

            return run_reports(command, hydra)
    return run_points(command, args, argv)


def run_points(command: Command, args: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run the points of a command or sweep, draw the sweep, judge, and print the results. Returns the exit status."""
    from bench.config.cell import Cell
    from bench.config.settings import Settings

    settings = Settings.from_config(command.points[0].config)
    cells = [Cell.from_config(point.config) for point in command.points]
    from bench.run.outcome import labels_of, print_outcome  # a wrong command is refused before what takes seconds
    from results.store.cells import Store

    labels = labels_of([point.overrides for point in command.points], cells)
    store = Store(settings.store.dir)
    if settings.dry_run:
        from bench.dry_run.plan import show_plan

        show_plan(cells, labels, store)
        return 0
    if settings.replay is not None:
        from bench.reports.replay import replay_cells

        return replay_cells(cells, labels, settings, store)
    from bench.judging.grading import judge_cells
    from bench.reports.sweep import plans_of, render_sweep
    from bench.run.cells import run_cells
    from bench.run.launch import launch
    from bench.run.model_pool import ModelPool
    from bench.run.related_cells import add_cross_cell_metrics
    from bench.run.rotation import check_store

    plans = plans_of(command, cells) if command.sweep is not None else []
    check_store(cells, store)
    if command.together:
        run_cells(cells, settings, store, ModelPool())
    else:
        launch(args, argv)
    add_cross_cell_metrics(cells, store)
    judged = judge_cells(cells, settings.judge, store) if settings.judge.base_url is not None else 0
    if plans:
        render_sweep(command, plans, settings, store)
    return max(judged, print_outcome(cells, labels, settings, store))


if __name__ == "__main__":
    sys.exit(main())
