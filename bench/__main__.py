"""`python -m bench`: compose and check every point of the command, run what is missing, print the
results."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.cli.command import run_command
from bench.config.command import check_clock, check_effects
from bench.config.compose import composer
from bench.config.errors import ConfigError
from bench.config.help import answered
from bench.config.paths import PROJECT

if TYPE_CHECKING:
    from bench.config.command import Command
    from bench.config.compose import Composer


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all done, 1 a cell failed (the last lines name it), 2 the command is wrong,
    130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--version"]:
        pyproject = tomllib.loads((PROJECT / "pyproject.toml").read_text())
        print("leeway", pyproject["project"]["version"])
        return 0
    sys.argv[1:] = words  # what environment.json and the pages record as the command

    def body() -> int:
        # a command without words would decode two hundred prompts, unasked
        if answered("config", words or ["--help"], own_help=True):
            return 0
        with composer(words) as hydra:
            return run(hydra.command(words), hydra)

    return run_command(body)


def run(command: Command, hydra: Composer) -> int:
    """Run a report, or the points of a command or sweep. Returns the exit status."""
    if not command.reports:
        return run_points(command)
    if hydra.settings(command.overrides).rehearse:
        from bench.cli.rehearse import rehearse

        return rehearse(command, hydra)
    from bench.reports.run import run_reports

    return run_reports(command, hydra)


def run_points(command: Command) -> int:
    """Run the points of a command or sweep, draw the sweep, judge, and print the results. Returns
    the exit status."""
    settings = command.settings  # a wrong command is refused before what takes seconds to import
    cells = command.cells
    if settings.rehearse:
        raise ConfigError("rehearse=true: rehearses reports; give report=NAME scale=paper")
    command.check_keys()
    from bench.run.run import run as run_cells
    from bench.run.session import Session

    check_effects([point.overrides for point in command.points], cells)
    check_clock(settings, cells)
    session = Session(settings)
    labels = command.labels
    if settings.dry_run:
        from bench.dry_run.estimate import PlannedCell
        from bench.dry_run.plan import show_plan
        from results.store.files import check_creatable

        if command.sweep is not None:
            check_creatable(settings.output.dir / "sweep", "output.dir")
        show_plan(
            [PlannedCell(cell, label=label) for label, cell in zip(labels, cells, strict=True)],
            session,
        )
        return 0
    from bench.dry_run.fit import check_fit
    from bench.reports.sweep import plan_of_sweep, render_sweep
    from bench.run.judging import judge_cells

    plan = plan_of_sweep(command) if command.sweep is not None else None
    session.check(cells, "sweep" if plan else None)
    check_fit(cells, settings.machine)
    if plan:
        session.logbook.group(plan.spec.name, cells)
    run_cells(cells, session)
    judged = judge_cells(cells, session) if settings.judge.base_url is not None else 0
    if plan:
        render_sweep(command, plan, session)
    return max(judged, session.print_outcome(cells, labels))


if __name__ == "__main__":
    sys.exit(main())
