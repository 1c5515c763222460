"""`python -m bench.cost cost=NAME [store.dir=DIR]`: what the cells of a store would gain on another machine
(conf/cost.yaml; docs/cost.md)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml
from rich.table import Table

from bench.config.command import run_yaml_command
from bench.config.compose import composer
from bench.config.paths import CONF
from bench.config.section import Section, validated
from bench.config.settings import Folder, profile_of
from bench.run.console import console
from bench.run.cost_clock import Clocks
from results.metrics.cost_check import Seconds, check_of, speedup, stated
from results.store.cells import Store
from results.store.compared import Compared, compare
from results.store.errors import StoreError
from results.store.files import check_writable, replace_text

if TYPE_CHECKING:
    from results.metrics.cost import Profile
    from results.store.summary import Interval


LOSSLESS_RULES = ("lossless", "block", "traversal")


class Cost(Section):
    """conf/cost.yaml, which explains every field."""

    store: Folder
    cells: str
    summary: Literal["table", "json"]


@dataclass(frozen=True, slots=True)
class Row:
    """A cell on the machine of a profile.

    group     what it is compared within: pair, task, temperature.
    lossless  its distribution is the target's.
    modelled  answer speedup over all prompts there, with its interval.
    predicted, measured  answer speedup of the timed prompts, by the profile and by the clock that timed them.
    """

    cell: str
    group: str
    lossless: bool
    tau: float | None
    modelled: float
    interval: Interval | None
    predicted: float | None
    measured: float | None


def rows(store: Store, profile: Profile, part: str) -> Iterator[Row]:
    """A row for each complete cell that drafts and whose name contains `part`. Raises StoreError."""
    keys = [entry.key for entry in store.entries() if entry.complete and part in entry.key]
    for content in store.contents(keys):
        config, folder = content.config, store.cell(content.entry.key)
        if config["drafter"]["name"] == "none" or content.summary is None:
            continue
        base = {record.id: record for record in store.cell(config["baseline"]).samples()}
        records = compare(folder.samples(), base, {row.id: row for row in folder.timed()})
        try:
            clocks = Clocks.of(profile, config)
            pairs = [record for record in records if isinstance(record, Compared)]
            there = [record for record in clocks.modelled(pairs) if isinstance(record, Compared)]
        except StoreError as error:
            print(f"left out: {folder.key}: {error}", file=sys.stderr)
            continue
        here = [pair for pair in pairs if pair.timed is not None]
        timed = {pair.id for pair in here}
        value, interval = speedup(Seconds.of(there))
        group = f"{config['pair']['name']}, {config['task']['name']}, T = {config['decoding']['temperature']:g}"
        yield Row(folder.key, group, config["rule"]["name"] in LOSSLESS_RULES, content.summary.tau, value, interval,
                  speedup(Seconds.of([pair for pair in there if pair.id in timed]))[0] if here else None,
                  speedup(Seconds.of(here))[0] if here else None)


def write_profile(to: Path, overrides: Sequence[str], prompts: int, batches: Sequence[int],
                  check: Path | None) -> None:
    """Measure the profile of a pair on this machine and write it; with `check`, also how well it predicts the timed
    cells of that store. A path that is not absolute lies in conf. Raises ValueError, ModelError, StoreError."""
    from bench.run.cost_profile import measure

    file = CONF / to
    if file.suffix != ".yaml":
        raise ValueError(f"to={to}: must be a YAML file, such as to=cost/mine.yaml")
    check_writable(file.parent, "to")
    if check is not None and not check.is_dir():
        raise ValueError(f"--check {check}: no such folder; give the store of a run on this machine")
    with composer() as hydra:
        profile = measure(hydra, overrides, prompts, batches, lambda text: print(text, flush=True))
    if check is not None:
        pair = next(iter(profile.sources)).partition("pair=")[2].split(" ")[0] or "tiny"
        found = [row for row in rows(Store(check), profile, "") if row.group.startswith(f"{pair},")]
        profile = profile.model_copy(update={"check": check_of([(row.predicted, row.measured) for row in found])})
    plain = yaml.safe_dump(profile.model_dump(mode="json", exclude_none=True), sort_keys=False, width=120)
    replace_text(file, f"# python -m bench.cost cost={file.stem}\n{plain}")
    print(f"written: {file}; {stated(profile)}")


def run(config: Mapping[str, Any]) -> int:
    """Print the table. Raises ValueError, StoreError, one line."""
    settings = validated(Cost, {name: config[name] for name in Cost.model_fields if name in config}, "")
    if not settings.store.dir.is_dir():
        raise ValueError(f"store.dir={settings.store.dir}: no such folder; give the store of a run")
    profile = profile_of(config)
    if profile is None:
        raise ValueError("cost=null: names no machine; give cost=NAME, a file of conf/cost")
    found = list(rows(Store(settings.store.dir), profile, settings.cells))
    if not found:
        raise ValueError(f"store.dir={settings.store.dir}: no complete cell with a draft"
                         + (f" whose name contains {settings.cells!r}" if settings.cells else ""))
    if settings.summary == "json":
        for row in found:
            print(json.dumps(asdict(row)))
        return 0
    console().print(table(found), highlight=False)
    console().print(stated(profile), highlight=False, markup=False, soft_wrap=True)
    if check := check_of([(row.predicted, row.measured) for row in found]):
        console().print(f"predicted ÷ measured on the timed prompts of {check.cells} cells: median {check.median:.3f}, "
                        f"90% of them {check.low:.3f} to {check.high:.3f}", highlight=False, soft_wrap=True)
    return 0


def table(found: Sequence[Row]) -> Table:
    """The cells by what they are compared within, the fastest first; the best lossless one is marked."""
    shown = Table(caption="* the fastest lossless setting there")
    for name in ("cell", "τ", "answer speedup there", "timed prompts: there", "measured"):
        shown.add_column(name, justify="left" if name == "cell" else "right")
    for group in dict.fromkeys(row.group for row in found):
        own = sorted((row for row in found if row.group == group), key=lambda row: -row.modelled)
        best = next((row for row in own if row.lossless), None)
        shown.add_row(f"[bold]{group}[/bold]", "", "", "", "")
        for row in own:
            low, high = row.interval or (np.nan, np.nan)
            shown.add_row(row.cell + (" *" if row is best else ""), f"{row.tau:.2f}" if row.tau else "",
                          f"{row.modelled:.2f}× ({low:.2f} to {high:.2f})",
                          "" if row.predicted is None else f"{row.predicted:.2f}×",
                          "" if row.measured is None else f"{row.measured:.2f}×")
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_yaml_command("cost", run, argv)


if __name__ == "__main__":
    sys.exit(main())
