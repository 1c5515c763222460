"""What a report's cells need measured on their pair first: ARC's constants, AutoJudge's classifier,
and FSD's draft length and thresholds."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.config.command import key_of
from bench.config.paths import TINY
from results.reports.spec import OWN_MODELS

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.command import Candidate
    from bench.config.compose import Composer
    from bench.run.session import Session

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kind:
    """A file of a pair that a command makes.

    command    the command that makes it, behind `python -m`.
    file       where, in the output folder; {} stands for the pair.
    overrides  of the command, for pairs other than the embedded one.
    of_task    task -> the overrides for its cells, which have a file of their own.
    """

    command: str
    file: str
    overrides: tuple[str, ...] = ()
    of_task: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


KINDS: Mapping[str, Kind] = {
    "arc": Kind(
        "models.train calibrate",
        "calibration/{}.json",
        ("task=oasst1", "min_new_tokens=32", "max_new_tokens=256"),
    ),
    "autojudge": Kind(
        "models.train judge",
        "judge/{}_autojudge.json",
        ("task=gsm8k_dropmatch", "task.split=train", "prompts=4000"),
        {"livecodebench_v5": ("task=livecodebench", "prompts=175")},
    ),
}
"""pair.KEY -> how its file is made. Judge decoding's classifier needs labels made by people."""

TUNED: Mapping[str, str] = {
    "tuned": "length",
    "tuned_low": "Low",
    "tuned_medium": "Med.",
    "tuned_high": "High",
}
"""Value of an override in a report -> which of the numbers that `models.train thresholds` chooses
it stands for."""
FEW = 32
"""Prompts that choose the draft length and the first threshold, at most."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command that makes a missing file; an interrupted one resumes.

    planned  the cell that waits for it, composed with the embedded pair's file: its settings and
             sizes, not its name.
    """

    argv: tuple[str, ...]
    file: Path
    planned: Cell | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return " ".join(["python", "-m", *self.argv])


def with_files(
    hydra: Composer, overrides: Sequence[str], found: Candidate
) -> tuple[Candidate, Step | None]:
    """A point that lacks a file of its pair, composed with the file that a step has made; or the
    step that makes it. A file that no step makes is absent. Models of the user's own get no step: a
    file says on which models it was measured, its name does not."""
    if found.lacks and found.lacks not in KINDS:
        return replace(found, refused="", absent=found.refused), None
    kind = KINDS.get(found.lacks)
    if kind is None or (pair := hydra.pair(overrides).name) == OWN_MODELS:
        return found, None
    task = hydra.point(overrides).config["task"]["name"]
    own_file = f"{pair}_{task}" if task in kind.of_task else pair
    file = (hydra.settings(overrides).output.dir / kind.file.format(own_file)).absolute()
    if file.is_file():
        return hydra.candidate([*overrides, f"pair.{found.lacks}={file}"]), None
    given = {
        key_of(line): line
        for line in overrides
        if key_of(line).partition(".")[0] in ("pair", "engine")
    }
    own = () if hydra.config_dir is None else ("--config-dir", hydra.config_dir)
    options = kind.of_task.get(task, kind.overrides)
    planned = hydra.candidate([*overrides, f"pair.{found.lacks}={TINY / found.lacks}.json"]).cell
    return found, Step(
        (
            *kind.command.split(),
            *own,
            *given.values(),
            *options,
            f"out={file}",
            f"work={file.with_suffix('')}",
        ),
        file,
        planned,
    )


def tuned(hydra: Composer, overrides: Sequence[str]) -> tuple[list[str], Step | None, str]:
    """The overrides with the numbers that stand for `TUNED`, measured for their pair and task, and
    a note that names them; or the step that measures them. Autoregressive decoding needs none.
    Raises ValueError for a damaged file."""
    given = {key_of(line): line for line in overrides}
    asked = {
        key: value for key, line in given.items() if (value := line.partition("=")[2]) in TUNED
    }
    plain = [line for key, line in given.items() if key not in asked]
    if not asked or "method=ar" in given.values():
        return plain, None, ""
    point = hydra.point([*plain, "draft.length=10"])
    pair, task, n = (point.config["pair"]["name"], point.config["task"]["name"], point.config["n"])
    file = (hydra.settings(plain).output.dir / "thresholds" / f"{pair}_{task}.json").absolute()
    if file.is_file():
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            numbers = {"length": found["length"], **found["levels"]}
            chosen = {key: numbers[TUNED[value]] for key, value in asked.items()}
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ValueError(
                f"{file}: is not what models.train thresholds writes; remove it to measure anew"
            ) from error
        note = ", ".join(f"{key.rpartition('.')[2]} {number:g}" for key, number in chosen.items())
        return (
            [*plain, *(f"{key}={number}" for key, number in chosen.items())],
            None,
            f"chosen on its prompts: {note}",
        )
    own = () if hydra.config_dir is None else ("--config-dir", hydra.config_dir)
    kept = [
        line
        for key, line in given.items()
        if key.partition(".")[0] in ("pair", "engine", "task", "seed")
        and key not in ("task.samples", "task.pass_at")
    ]
    few = () if n is None else (f"prompts={min(FEW, n)}", f"scored={n}")
    argv = (
        "models.train",
        "thresholds",
        *own,
        *kept,
        *few,
        f"out={file}",
        f"work={file.with_suffix('')}",
    )
    return plain, Step(argv, file, hydra.candidate([*plain, "draft.length=10"]).cell), ""


def run_module(argv: Sequence[str]) -> int:
    """The exit status of `python -m ARGV`, which prints to this terminal."""
    return subprocess.run([sys.executable, "-m", *argv], check=False).returncode


def run_steps(steps: Iterable[Step], session: Session) -> bool:
    """Run each command, in a process of its own: its models leave the memory with it. A step that
    fails leaves out the cells that need it. Returns whether there was one."""
    steps = list(dict.fromkeys(steps))
    for step in steps:
        session.print(f"first: {step}", markup=False, soft_wrap=True)
        step.file.parent.mkdir(parents=True, exist_ok=True)
        status = run_module(step.argv)
        if status:
            log.error("%s: ended with status %d; its cells are left out", step, status)
    return bool(steps)
