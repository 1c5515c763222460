"""`report=NAME scale=paper rehearse=true`: a report whole, with tiny random models in the hub's
formats, to see that nothing is missing before it costs GPU hours.

The stand-ins for hub, data and judge, and the check of what was written, are those of the tests
(tests/helpers/rehearsal): Leeway runs from its checkout."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.config.command import key_of
from bench.config.errors import ConfigError
from bench.config.paths import PROJECT
from bench.reports.run import ReportRequest

if TYPE_CHECKING:
    from bench.config.command import Command
    from bench.config.compose import Composer
    from bench.config.settings import Settings

FOLDER = "outputs/rehearsal"
MARK = "rehearsal.txt"
STAND_INS = PROJECT / "tests" / "helpers" / "rehearsal"


def rehearse(command: Command, hydra: Composer) -> int:
    """Rehearse the reports of a command, and print a line for each. Returns 1 where one fails, else
    0. Raises ConfigError for what cannot be rehearsed, and where the folder or the store holds
    anything but rehearsals."""
    request = ReportRequest.from_command(command)
    for name in request.reports:
        hydra.check_option("report", name)
    overrides = [*request.overrides]
    if "output.dir" not in map(key_of, overrides):
        overrides.append(f"output.dir={FOLDER}")
    settings = hydra.settings(overrides)
    _check(settings, overrides)
    whole, stand_ins = _imported("whole"), _imported("stand_ins")
    folder, store = settings.output.dir.absolute(), settings.store.dir.absolute()
    _mark("output.dir", folder, stand_ins.NOTE)
    _mark("store.dir", store, stand_ins.NOTE)
    kept = [
        line for line in overrides if key_of(line) not in ("output.dir", "store.dir", "workers")
    ]
    outcomes = {}
    with stand_ins.stand_ins(folder, hydra.config_dir) as composer:
        for name in request.reports:
            places = [f"output.dir={folder / name}", f"store.dir={store}"]
            outcomes[name] = whole.rehearsed(name, composer, [*kept, *places])
            print(outcomes[name].line(name), flush=True)
            lines = [outcome.line(report) for report, outcome in outcomes.items()]
            (folder / MARK).write_text("\n".join([stand_ins.NOTE, *lines, ""]), encoding="utf-8")
    return int(any(outcome.missing for outcome in outcomes.values()))


def _check(settings: Settings, overrides: list[str]) -> None:
    """Raises ConfigError."""
    if settings.dry_run:
        raise ConfigError("rehearse=true dry_run=true: give one of the two")
    if "scale=paper" not in overrides:
        raise ConfigError("rehearse=true: rehearses a report at the papers' scale; add scale=paper")
    if settings.tracker.name != "none":
        raise ConfigError(
            f"rehearse=true tracker={settings.tracker.name}: random results are not logged; "
            "leave out tracker="
        )


def _imported(module: str) -> Any:
    """A module of the stand-ins. Raises ConfigError where the checkout lacks the tests."""
    if not STAND_INS.is_dir():
        raise ConfigError(f"rehearse=true: needs {STAND_INS}, which a whole checkout has")
    if str(PROJECT) not in sys.path:
        sys.path.insert(0, str(PROJECT))
    return import_module(f"tests.helpers.rehearsal.{module}")


def _mark(key: str, folder: Path, note: str) -> None:
    """Say in a folder what it holds. Raises ConfigError where it holds anything else."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise ConfigError(
            f"{key}={folder}: holds real results, and rehearse=true writes random ones; give a "
            f"folder of its own, or leave {key} out ({FOLDER})"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MARK).is_file():
        (folder / MARK).write_text(note + "\n", encoding="utf-8")
