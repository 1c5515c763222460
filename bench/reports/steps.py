"""What a report's cells need measured on their pair first: ARC's constants, AutoJudge's classifier,
and FSD's draft length and thresholds."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.config.command import key_of
from bench.config.paths import TINY
from bench.dry_run.estimate import prompts_and_answers
from bench.reports.overrides import values_of
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

    def answers(self, task: str) -> int:
        """The fewest answers that it decodes for cells of this task."""
        lines = values_of(self.of_task.get(task, self.overrides))
        return int(lines.get("prompts", CALIBRATED))


CALIBRATED = 200
"""Prompts of `models.train calibrate` by default."""
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

STAND_INS: Mapping[str, str] = {
    "tuned": "10",
    "tuned_low": "0.2",
    "tuned_medium": "0.4",
    "tuned_high": "0.6",
}
"""Numbers with which a point is planned before its own are chosen."""
TUNED: Mapping[str, str] = {
    "tuned": "length",
    "tuned_low": "Low",
    "tuned_medium": "Med.",
    "tuned_high": "High",
}
"""Value of an override in a report -> which of the numbers that `models.train thresholds` chooses
it stands for."""
TENSOR = "engine.parallel=tensor"
TORCHRUN = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
"""Variables of a process that torchrun has started, which no step is."""
TRIALS = 3
"""Answers to each prompt by which FSD's numbers are chosen."""
FEW = 32
"""Prompts that choose the draft length and the first threshold, at most."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command that makes a missing file; an interrupted one resumes.

    planned  the cell that waits for it, composed with the embedded pair's file or numbers that
             stand for those that are chosen: its settings and sizes, not its name.
    answers  the fewest and the most answers of the target that it decodes; 0 where the most is not
             known.
    """

    argv: tuple[str, ...]
    file: Path
    planned: Cell | None = field(default=None, compare=False)
    answers: tuple[int, int] = field(default=(0, 0), compare=False)

    def __str__(self) -> str:
        return " ".join(["python", "-m", *self.argv])


def with_files(
    hydra: Composer, overrides: Sequence[str], candidate: Candidate
) -> tuple[Candidate, Step | None]:
    """A point that lacks a file of its pair, composed with the file that a step has made; or the
    step that makes it. A file that no step makes is absent. Models of the user's own get no step: a
    file says on which models it was measured, its name does not."""
    lacks = candidate.lacks
    if lacks and lacks not in KINDS:
        return replace(candidate, refused="", absent=candidate.refused), None
    kind = KINDS.get(lacks)
    if kind is None or (pair := hydra.pair(overrides).name) == OWN_MODELS:
        return candidate, None
    task = hydra.point(overrides).config["task"]["name"]
    name = f"{pair}_{task}" if task in kind.of_task else pair
    file = (hydra.settings(overrides).output.dir / kind.file.format(name)).absolute()
    if file.is_file():
        return hydra.candidate([*overrides, f"pair.{lacks}={file}"]), None
    lines = [*within(overrides, "pair", "engine"), *kind.of_task.get(task, kind.overrides)]
    planned = hydra.candidate([*overrides, f"pair.{lacks}={TINY / lacks}.json"]).cell
    answers = kind.answers(task), 0
    return candidate, step_of(kind.command, lines, file, planned, hydra, answers)


def within(overrides: Iterable[str], *sections: str) -> list[str]:
    """The overrides in these sections, the last one of each key."""
    by_key = {key_of(line): line for line in overrides}
    return [line for key, line in by_key.items() if key.partition(".")[0] in sections]


def step_of(
    command: str,
    lines: Iterable[str],
    file: Path,
    planned: Cell | None,
    hydra: Composer,
    answers: tuple[int, int],
) -> Step:
    """The step whose command makes the file."""
    folder = [] if hydra.config_dir is None else ["--config-dir", hydra.config_dir]
    # one process, whatever torchrun has started
    lines = ["engine.parallel=layers" if line == TENSOR else line for line in lines]
    paths = f"out={file}", f"work={file.with_suffix('')}"
    return Step((*command.split(), *folder, *lines, *paths), file, planned, answers)


def tuned(hydra: Composer, overrides: Sequence[str]) -> tuple[list[str], Step | None, str]:
    """The overrides with the numbers that stand for `TUNED`, measured for their pair and task, and
    a note that names them; or the step that measures them. Autoregressive decoding needs none.
    Raises ValueError for a damaged file."""
    lines = {key_of(line): line for line in overrides}
    values = values_of(overrides)
    asked = {key: value for key, value in values.items() if value in TUNED}
    plain = [line for key, line in lines.items() if key not in asked]
    if not asked or values.get("method") == "ar":
        return plain, None, ""
    point = hydra.point([*plain, "draft.length=10"])
    name = f"{point.config['pair']['name']}_{point.config['task']['name']}.json"
    file = (hydra.settings(plain).output.dir / "thresholds" / name).absolute()
    if file.is_file():
        try:
            written = json.loads(file.read_text(encoding="utf-8"))
            numbers = {"length": written["length"], **written["levels"]}
            chosen = {key: numbers[TUNED[value]] for key, value in asked.items()}
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ValueError(
                f"{file}: is not what models.train thresholds writes; remove it to measure again"
            ) from error
        note = ", ".join(f"{key.rpartition('.')[2]} {number:g}" for key, number in chosen.items())
        numbered = [f"{key}={number}" for key, number in chosen.items()]
        return [*plain, *numbered], None, f"tuned on its prompts (Appendix D): {note}"
    kept = [
        line
        for line in within(overrides, "pair", "engine", "task", "seed")
        if key_of(line) not in ("task.samples", "task.pass_at")
    ]
    if (penalty := point.config["decoding"]["repetition_penalty"]) != 1:
        kept.append(f"repetition_penalty={penalty:g}")
    if (n := point.config["n"]) is not None:
        kept += [f"prompts={min(FEW, n)}", f"scored={n}"]
    stand_ins = [f"{key}={STAND_INS[value]}" for key, value in asked.items()]
    planned = hydra.candidate([*plain, *stand_ins]).cell
    answers = (0, 0) if planned is None else tuning_answers(planned, n)
    return plain, step_of("models.train thresholds", kept, file, planned, hydra, answers), ""


def tuning_answers(planned: Cell, n: int | None) -> tuple[int, int]:
    """The fewest and the most answers of the target and of the draft model that `models.train
    thresholds` decodes by its defaults: `FEW` prompts at each draft length and threshold, all with
    each model alone and at three thresholds at least."""
    rows = n if n is not None else prompts_and_answers(planned)[0]
    samples = getattr(planned.task.options, "samples", 1)
    prompts = (rows or 0) // (1 if n is not None else samples)
    few, lengths, thresholds = min(FEW, prompts), 4, 10
    least, most = (
        TRIALS * (few * (lengths + thresholds) + prompts * (2 + scored))
        for scored in (3, thresholds)
    )
    return least, most


def run_module(argv: Sequence[str]) -> int:
    """The exit status of `python -m ARGV`, which prints to this terminal."""
    environment = {key: value for key, value in os.environ.items() if key not in TORCHRUN}
    return subprocess.run([sys.executable, "-m", *argv], env=environment, check=False).returncode


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
