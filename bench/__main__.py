"""`python -m bench`: compose and check every point of the command, run what is missing, say what came of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from bench.config.command import run_command
from bench.config.compose import Command, composer
from bench.config.help import help_text
from bench.config.hydra_internals import arguments, asks_hydra, run_hydra


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all done, 1 a cell failed (the closing lines say which), 2 the command is wrong."""
    given = list(sys.argv[1:] if argv is None else argv)
    return run_command(lambda: bench(given))


def bench(given: Sequence[str]) -> int:
    args = arguments(given)
    if args.help:
        print(help_text())
        return 0
    if asks_hydra(args):
        run_hydra(lambda _: None, "config", args, given)
        return 0
    with composer(args.config_dir) as hydra:
        command = hydra.command(args.overrides, args.multirun)
        if command.report is not None:
            from bench.reports.run import run_reports

            return run_reports(command, hydra)
    sys.argv[1:] = [*(word for word in given if word not in args.overrides), *args.overrides]
    return run(command)


def run(command: Command) -> int:
    from bench.config.cell import Cell
    from bench.config.settings import Settings
    from bench.run.outcome import labels_of, print_outcome
    from results.store.cells import Store

    settings = Settings.from_config(command.points[0].config)
    cells = [Cell.from_config(point.config) for point in command.points]
    labels = labels_of([point.overrides for point in command.points], cells)
    if settings.dry_run:
        from bench.dry_run.plan import show_plan

        show_plan(cells, labels, settings)
        return 0
    if settings.replay is not None:
        from bench.reports.replay import replay_cells

        return replay_cells(cells, labels, settings)
    from bench.reports.sweep import plans_of, render_sweep
    from bench.run.launch import hydra_job
    from bench.run.rotation import check_store, rotations

    store = Store(settings.store.dir)
    check_store(cells, store)
    plans = plans_of(command, cells) if command.sweep is not None else []
    with suppress(SystemExit):  # Hydra has printed why; what was done is in the store
        hydra_job(rotations(cells) if command.together else None)()
    if plans:
        render_sweep(command, plans, settings)
    from bench.run.related_cells import add_cross_cell_metrics

    add_cross_cell_metrics(cells, store)
    judged = 0
    if settings.judge.base_url is not None:
        from bench.judging.grading import judge_cells

        judged = judge_cells(cells, settings.judge, store)
    return max(judged, print_outcome(cells, labels, settings))


if __name__ == "__main__":
    sys.exit(main())
