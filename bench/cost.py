"""`python -m bench.cost cost=NAME [store.dir=DIR]`: what the cells of a store would gain on another machine
(conf/cost.yaml; docs/cost.md).

`python -m bench.cost to=cost/NAME.yaml [KEY=VALUE …]` measures the profile of a pair on this machine and writes it, in
conf; the other overrides are those of `python -m bench`. With --check DIR, a store of timed cells of this machine, it
says how well the profile predicts them."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import PositiveInt
from rich.console import Console
from rich.table import Table

from bench.commands.command import Options, StoreOptions, run_command, run_yaml_command
from bench.config.cost_file import profile_of, save
from bench.run.cost_clock import Clocks, beside
from methods import registry
from methods.sampling import Sampling
from results.metrics.adds import SoFar
from results.metrics.cost import AnswerSeconds, check_of, speedup, stated
from results.store.cells import Store
from results.store.errors import Arguments, StoreError
from results.store.files import check_writable
from results.store.sample import Compared, compare

if TYPE_CHECKING:
    from results.metrics.cost import Profile
    from results.metrics.intervals import Interval


WIDTH = 170
"""Characters of a line where the output is no terminal."""


class Cost(StoreOptions):
    """conf/cost.yaml, which explains every field."""

    cells: str
    summary: Literal["table", "json"]
    plot: Path | None


@dataclass(frozen=True, slots=True)
class Row:
    """A cell on the machine of a profile.

    group     what it is compared within: pair, task, temperature.
    lossless  its distribution is the target's.
    modelled  answer speedup over all prompts there.
    range     over the profiles of that machine; its 95% interval over prompts where there is only one.
    predicted, measured  answer speedup of the timed prompts, by the profile and by the clock that timed them; None
              where that was of another machine.
    """

    cell: str
    group: str
    lossless: bool
    tau: float | None
    modelled: float
    range: Interval | None
    predicted: float | None
    measured: float | None


def rows(store: Store, profile: Profile, part: str) -> Iterator[Row]:
    """A row for each complete cell that drafts and whose name contains `part`; those without one are told at the end,
    a line for each reason. Raises StoreError."""
    left_out: dict[str, list[str]] = defaultdict(list)
    for entry in store.entries():
        if part not in entry.key:
            continue
        if entry.damage:
            left_out[entry.damage].append(entry.key)
        folder = store.cell(entry.key)
        config = folder.config() or {} if entry.complete else {}
        if not config or config["drafter"]["name"] == "none":
            continue
        try:
            base = {record.id: record for record in store.cell(config["baseline"]).samples()}
            records = compare(folder.samples(), base, {row.id: row for row in folder.timed()})
            pairs = [record for record in records if isinstance(record, Compared)]
            clocks = [Clocks.of(one, config) for one in (profile, *beside(profile))]
            there, *others = [[record for record in each.modelled(pairs) if isinstance(record, Compared)]
                              for each in clocks]
        except StoreError as error:
            left_out[str(error)].append(folder.key)
            continue
        is_here = profile.machine is not None and profile.machine == processor(folder.environment() or {})
        here = [pair for pair in pairs if pair.timed is not None and is_here]
        timed = {pair.id for pair in here}
        value, interval = speedup(AnswerSeconds.of(there))
        values = [value, *(speedup(AnswerSeconds.of(pairs))[0] for pairs in others)]
        group = f"{config['pair']['name']}, {config['task']['name']}, T = {config['decoding']['temperature']:g}"
        yield Row(folder.key, group, is_lossless(config), SoFar.of(folder.good_samples()).tau, value,
                  (min(values), max(values)) if others else interval,
                  speedup(AnswerSeconds.of([pair for pair in there if pair.id in timed]))[0] if here else None,
                  speedup(AnswerSeconds.of(here))[0] if here else None)
    for reason, names in left_out.items():
        more = f" and {len(names) - 1} more" * (len(names) > 1)
        print(f"left out: {names[0]}{more}: {reason}", file=sys.stderr)


def processor(environment: Mapping[str, Any]) -> str | None:
    """What decoded: the accelerator of an environment record, else its processor."""
    found: dict[str, Any] = environment.get("accelerator") or {}
    name: str | None = found.get("name") or (environment.get("cpu") or {}).get("model")
    return name


def is_lossless(config: Mapping[str, Any]) -> bool:
    """Whether a cell with this configuration has the target's distribution (`Cell.is_lossless`)."""
    sampling, options = Sampling(config["decoding"]["temperature"]), dict(config["rule"])
    rule = registry.rule(options.pop("name"))(**options)
    return rule.is_lossless(sampling) and (sampling.greedy or config.get("pruning") is None)


class Measuring(Options):
    """Options of `python -m bench.cost to=FILE`.

    to       file of the profile, in conf unless its path is absolute.
    prompts  of each method.
    batches  rows that decode together.
    check    a store of timed cells of this machine, which the profile then predicts.
    """

    to: Path
    prompts: PositiveInt
    batches: tuple[PositiveInt, ...]
    check: Path | None


def measure_profile(argv: Sequence[str] | None = None) -> int:
    """Measure the profile of a pair on this machine and write it. Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(prog="python -m bench.cost", description=__doc__,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--prompts", default=6, help="of each method")
    parser.add_argument("--batches", default="1", help="rows that decode together, such as 1,4,16")
    parser.add_argument("--check", metavar="DIR", help="a store whose timed cells the profile then predicts")
    given = vars(parser.parse_intermixed_args(argv))
    overrides = given.pop("overrides")
    given |= {"batches": given["batches"].split(","), "to": next(line[3:] for line in overrides if line[:3] == "to=")}
    own = [line for line in overrides if not line.startswith("to=")]
    return run_command(lambda: write_profile(Measuring.from_args(given), own))


def write_profile(options: Measuring, overrides: Sequence[str]) -> None:
    """Raises ValueError, ModelError, StoreError."""
    from bench.run.cost_profile import measure

    file = Path("conf") / options.to
    if file.suffix != ".yaml":
        raise ValueError(f"to={options.to}: must be a YAML file, such as to=cost/mine.yaml")
    check_writable(file.parent, "to")
    if options.check is not None and not options.check.is_dir():
        raise ValueError(f"--check {options.check}: no such folder; give the store of a run on this machine")
    pair, profile = measure(overrides, options.prompts, options.batches, lambda text: print(text, flush=True))
    if options.check is not None:
        found = [row for row in rows(Store(options.check), profile, "") if row.group.startswith(f"{pair},")]
        profile = profile.model_copy(update={"check": check_of([(row.predicted, row.measured) for row in found])})
    save(file, profile)
    print(f"written: {file}; {stated(profile)}")


def run(config: Mapping[str, Any]) -> int:
    """Print the table. Raises ValueError, StoreError, one line."""
    settings, profile = Cost.from_args({name: config[name] for name in config if name != "cost"}), profile_of(config)
    store = settings.opened()
    if profile is None:
        raise ValueError("cost=null: names no machine; give cost=NAME, a file of conf/cost")
    if settings.plot is not None:
        check_writable(settings.plot.parent, "plot")
    found = list(rows(store, profile, settings.cells))
    if not found:
        raise ValueError(f"store.dir={store.root}: no complete cell with a draft"
                         + (f" whose name contains {settings.cells!r}" if settings.cells else ""))
    if settings.plot is not None:
        draw_check(found, profile, settings.plot)
    if settings.summary == "json":
        for row in found:
            print(json.dumps(asdict(row)))
        return 0
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    bracketed = (f"the range over this profile and {', '.join(profile.beside)}" if profile.beside else
                 "the 95% interval over prompts; what the profile itself misses is not in it")
    console.print(table(found, bracketed), highlight=False)
    console.print(stated(profile), highlight=False, markup=False, soft_wrap=True)
    if check := check_of([(row.predicted, row.measured) for row in found]):
        console.print(f"predicted ÷ measured on the timed prompts of {check.cells} cells: median {check.median:.3f}, "
                        f"90% of them {check.low:.3f} to {check.high:.3f}", highlight=False, soft_wrap=True)
    return 0


def draw_check(found: Sequence[Row], profile: Profile, file: Path) -> None:
    """Draw predicted against measured as PNG, PDF and SVG. Raises ValueError where no cell has both."""
    from plots.predicted import draw  # matplotlib, which a table should not cost
    from plots.render import save
    from plots.style import note, style

    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in found:
        if row.predicted is not None and row.measured is not None:
            points[row.group].append((row.predicted, row.measured))
    if not points:
        raise ValueError(f"plot={file}: no cell of the store was timed; run it with timed=24")
    with style(salt="cost"):
        figure = draw(points, ("answer speedup, predicted", "measured on the same prompts"))
        note(figure, profile.title)
        save(figure, file.with_suffix(""))


def table(found: Sequence[Row], words: str) -> Table:
    """The cells by what they are compared within, the fastest first; the best lossless one is marked. `words`: on the
    ranges."""
    shown = Table(caption=f"* the fastest lossless setting there; in brackets: {words}")
    for name in ("cell", "τ", "answer speedup there", "timed prompts: there", "measured"):
        shown.add_column(name, justify="left" if name == "cell" else "right")
    for group in dict.fromkeys(row.group for row in found):
        own = sorted((row for row in found if row.group == group), key=lambda row: -row.modelled)
        best = next((row for row in own if row.lossless), None)
        shown.add_row(f"[bold]{group}[/bold]", "", "", "", "")
        for row in own:
            low, high = row.range or (np.nan, np.nan)
            shown.add_row(row.cell + (" *" if row is best else ""), f"{row.tau:.2f}" if row.tau else "",
                          f"{row.modelled:.2f}× ({low:.2f} to {high:.2f})",
                          "" if row.predicted is None else f"{row.predicted:.2f}×",
                          "" if row.measured is None else f"{row.measured:.2f}×")
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    if any(line.startswith("to=") for line in (sys.argv[1:] if argv is None else argv)):
        return measure_profile(argv)
    return run_yaml_command("cost", run, argv)


if __name__ == "__main__":
    sys.exit(main())
