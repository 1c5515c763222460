"""`python -m bench.gpu [parts=exact,forward] [into=FOLDER]`: what a machine with a GPU tells in
minutes: exactness, the speed of a forward, the price of a cycle, a cost profile, the rules'
controls (conf/gpu.yaml; docs/gpu.md)."""

from __future__ import annotations

import json
import re
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveFloat
from rich.console import Console

from bench.commands.command import FAILED, Options, run_yaml_command
from bench.commands.gpu.part import Found, Machine
from bench.config.environment import environment
from bench.config.paths import PROJECT
from results.store.errors import one_line
from results.store.files import check_writable, replace_text

MEASURED = PROJECT / "results" / "measured"
HIDDEN = ("answers",)
"""Tables that README.md leaves out: they are for programs."""
Part = Literal["exact", "forward", "cycle", "profile", "controls"]
RESERVED: Mapping[Part, float] = {"forward": 70.0, "controls": 80.0}
"""Seconds on a GPU that the parts before must leave to a part."""


class Gpu(Options):
    """conf/gpu.yaml, which explains every field."""

    parts: tuple[Part, ...]
    device: str
    into: Path | None
    minutes: PositiveFloat


def run(config: Mapping[str, Any]) -> int:
    """Run the parts. Returns the exit status: 1 where a part failed or found what contradicts
    exactness. Raises ValueError, StoreError, one line."""
    options, began = Gpu.from_args(config), time.monotonic()
    device = _device(options.device)
    folder = options.into or MEASURED / name_of(device)
    if there := [part for part in options.parts if (folder / f"{part}.json").exists()]:
        raise ValueError(
            f"into={folder}: holds {', '.join(there)} already; give another folder, other parts, "
            f"or remove {folder / f'{there[0]}.json'}"
        )
    check_writable(folder, "into")
    if options.parts != ("profile",):  # which measures nothing
        found = environment(sys.argv, str(device), {"mode": "none", "devices": 1}, {}, {})
        replace_text(
            folder / f"environment_{options.parts[0]}.json", json.dumps(found, indent=2) + "\n"
        )
    console, failed = Console(), False
    ends = began + 60 * options.minutes

    def say(what: str) -> None:
        console.print(
            f"{time.monotonic() - began:5.0f} s, {max(0.0, ends - time.monotonic()):4.0f} s "
            f"left: {what}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    for place, part in enumerate(options.parts, start=1):
        result, started = Found(folder / f"{part}.json"), time.monotonic()
        kept = (
            0.0
            if device.type == "cpu"
            else sum(RESERVED.get(later, 0.0) for later in options.parts[place:])
        )
        try:
            import_module(f"bench.commands.gpu.{part}").measure(
                Machine(device, ends - kept, say), result
            )
        except (
            Exception
        ) as error:  # another part may still tell something: the time of a GPU is short
            traceback.print_exc()
            result.failures.append(f"{part} ended early: {one_line(error)}")
        result.seconds = time.monotonic() - started
        result.write()
        for line in faults(result.failures, result.skipped):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        failed |= bool(result.failures)
        write_page(folder)
    console.print(f"written: {folder}", highlight=False)
    return FAILED if failed else 0


def _device(name: str) -> torch.device:
    """Raises ValueError, one line, where there is no such device."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise ValueError(f"device={name}: must be auto, cpu, cuda or cuda:N")
    if name == "cpu":
        return torch.device("cpu")
    try:
        torch.cuda.init()
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # no driver, too old a driver, a build without CUDA
        raise ValueError(
            f"device={name}: no GPU can be used: {one_line(error)}; device=cpu runs the same "
            "code on tiny shapes"
        ) from error
    device = torch.device("cuda:0" if name in ("auto", "cuda") else name)
    if (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device={name}: there are {torch.cuda.device_count()} GPUs, numbered from 0"
        )
    return device


def name_of(device: torch.device) -> str:
    """The folder's name: that of the GPU in lower case, or cpu."""
    if device.type == "cpu":
        return "cpu"
    return re.sub(r"[^a-z0-9]+", "_", torch.cuda.get_device_name(device).lower()).strip("_")


def faults(failures: Sequence[str], skipped: Sequence[str]) -> list[str]:
    """A line for each."""
    return [*(f"FAILURE: {line}" for line in failures), *(f"skipped: {line}" for line in skipped)]


def write_page(folder: Path) -> None:
    """Write README.md with the tables of all parts in the folder."""
    environments = sorted(folder.glob("environment_*.json"))
    made = json.loads(environments[0].read_text(encoding="utf-8"))
    machine = (made["accelerator"] or {}).get(
        "name"
    ) or f"no GPU: {made['cpu']['model']}, tiny shapes"
    lines = [
        f"# {machine}",
        "",
        f"torch {made['packages']['torch']}, transformers {made['packages']['transformers']}; "
        "`python -m bench.gpu` wrote this page. How to read it: docs/gpu.md.",
    ]
    for file in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime):
        if file.name.startswith("environment"):
            continue
        part = json.loads(file.read_text(encoding="utf-8"))
        lines += ["", f"## {file.stem} ({part['seconds']:.0f} s)"]
        lines += [f"- {line}" for line in faults(part["failures"], part["skipped"])]
        for title, rows in part["tables"].items():
            if title not in HIDDEN:
                lines += [
                    "",
                    f"**{title}**",
                    "",
                    pd.DataFrame(rows).to_markdown(index=False, floatfmt=".3g"),
                ]
    replace_text(folder / "README.md", "\n".join(lines) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 a part failed, 2 the command is wrong."""
    given = (
        sys.argv[1:] if argv is None else argv
    )  # parts=a,b is a list here; Hydra would run a point for each
    return run_yaml_command(
        "gpu", run, [re.sub(r"^parts=(\w+(,\w+)*)$", r"parts=[\1]", line) for line in given]
    )


if __name__ == "__main__":
    sys.exit(main())
