"""`python -m bench.screen [KEY=VALUE …]`: accept length and distortion of every rule, expected on
the drafts of one lossless decode (conf/screen.yaml, docs/screen.md)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pydantic import NonNegativeInt, PositiveInt
from rich.table import Table

from bench.cli.command import Options, parted, run_command
from bench.config.command import key_of, with_base
from bench.config.compose import Composer, composer
from bench.config.errors import ConfigError
from bench.config.help import answered
from bench.config.paths import PROJECT
from bench.config.section import check_known
from bench.run.console import console
from methods import registry
from methods.outside import installed
from results.metrics.delta import Floats, estimate, ratio
from results.store.files import check_writable

if TYPE_CHECKING:
    from bench.run.screening import Overrides, Tally

LIMIT, LOSSLESS = "tilted", "lossless"
COLUMNS = (
    "rule",
    "setting",
    "tau",
    "tau_low",
    "tau_high",
    "gain",
    "gain_low",
    "gain_high",
    "distortion",
    "distortion_low",
    "distortion_high",
    "pareto",
    "speed_modelled",
    "tau_decoded",
    "distortion_decoded",
    "prompts",
    "cycles",
    "cpu_seconds",
    "no_distortion",
    "left_out",
)


class Screening(Options):
    """The command's own options, as conf/screen.yaml explains them."""

    rules: tuple[str, ...] | None
    plugins: bool
    check: NonNegativeInt
    batch: PositiveInt
    record: Path | None
    contexts: Path | None
    top: NonNegativeInt
    base: tuple[str, ...]
    settings: dict[str, dict[str, tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Setting:
    """One rule with its options.

    label      the options that tell it from the rule's other settings.
    overrides  that choose it, `rule=NAME` first.
    """

    rule: str
    label: str
    overrides: Overrides


def listed(options: Screening) -> Iterator[Setting]:
    """The settings of the rules that are asked for; lossless decoding and the limit always come
    first. Raises ConfigError for an unknown rule."""
    from_packages: dict[str, dict[str, Any]] = {rule: {} for rule in installed("rules")}
    known = from_packages | options.settings
    shown = known if options.plugins else options.settings
    asked = shown if options.rules is None else options.rules
    if not asked:  # to record only
        return
    for rule in asked:
        check_known("rules", rule, known)
    for rule in dict.fromkeys((LOSSLESS, LIMIT, *asked)):
        yield from combinations(rule, known[rule])


def combinations(rule: str, values: Mapping[str, Sequence[Any]]) -> Iterator[Setting]:
    """Every combination of the values of a rule's options."""
    swept = [name for name, tried in values.items() if len(tried) > 1]
    for combination in product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        label = ", ".join(f"{name}={chosen[name]}" for name in swept)
        overrides = [f"rule.{name}={value}" for name, value in chosen.items()]
        yield Setting(rule, label, (f"rule={rule}", *overrides))


def named(hydra: Composer, overrides: Sequence[str], options: Screening) -> Iterator[Setting]:
    """The settings that a command line names by `rule=` and `rule.KEY=`, several with -m, beside
    lossless decoding and the limit. Raises ConfigError."""
    yield from combinations(LOSSLESS, {})
    yield from combinations(LIMIT, options.settings[LIMIT])
    for point in hydra.command(overrides).points:
        others = {line for line in point.overrides if not is_of_rule(line)}
        swept = others - set(overrides)
        if swept:
            raise ConfigError(
                f"-m {min(swept)}: one screen is one decode; sweep rule and its options alone"
            )
        chosen = tuple(filter(is_of_rule, point.overrides))
        label = ", ".join(line.removeprefix("rule.") for line in chosen if line.startswith("rule."))
        yield Setting(registry.title("rules", point.config["rule"]["name"]), label, chosen)


def is_of_rule(line: str) -> bool:
    """Whether an override chooses the rule or sets one of its options."""
    return key_of(line).lstrip("+").partition(".")[0] == "rule"


def on_base(overrides: Sequence[str], base: Sequence[str]) -> list[str]:
    """The overrides behind those of `base` that they leave to it: a drafter or method that they
    name has a tree of its own."""
    if {"drafter", "method"} & set(map(key_of, overrides)):
        base = [line for line in base if not line.startswith("draft")]
    return with_base(overrides, base)


def contexts_file(contexts: Path) -> Path:
    """The file, or that of a pair which comes with this project: `smollm2`. Raises ConfigError for
    neither."""
    files = (PROJECT / "models").glob("*/contexts.safetensors")
    shipped = {file.parent.name: file for file in files}
    file = shipped.get(str(contexts), contexts)
    if not file.is_file():
        raise ConfigError(
            f"contexts={contexts}: no such file; give one that record=FILE has written, or "
            f"{' or '.join(sorted(shipped))}"
        )
    return file


def best(settings: Sequence[Setting], frame: pd.DataFrame, number: int) -> list[Setting]:
    """Lossless decoding, and the settings of the Pareto set with the largest modelled speed, or
    accept length where none is modelled."""
    by_name = {(setting.rule, setting.label): setting for setting in settings}
    rows = frame[frame["pareto"] & (frame["rule"] != LOSSLESS)].head(number)
    names = [(LOSSLESS, ""), *zip(rows["rule"], rows["setting"], strict=True)]
    return [by_name[name] for name in names]


def accept_length(sums: Floats) -> Floats:
    """Expected tokens per cycle. `sums`: of `Tally.sums`."""
    return np.asarray(sums[..., 0] / sums[..., 2])


def mean_nats(sums: Floats) -> Floats:
    """Nats per token. The first token of an answer comes from the prefill and loses nothing."""
    share = (sums[..., 3] - sums[..., 4]) / sums[..., 3]
    return np.asarray(sums[..., 1] / sums[..., 0] * share)


def line_of(
    setting: Setting, tally: Tally, speeds: Mapping[Overrides, float], lossless: Floats
) -> dict[str, Any]:
    """The row of a setting in screen.csv, without `pareto`. `lossless`: the sums of lossless
    decoding on the same drafts."""
    sums, left_out = tally.sums(setting.overrides), tally.refused.get(setting.overrides, "")
    line: dict[str, Any] = {
        "rule": setting.rule,
        "setting": setting.label,
        "left_out": left_out,
        "no_distortion": tally.no_law.get(setting.overrides, ""),
        "prompts": len(sums),
        "speed_modelled": speeds.get(setting.overrides),
    }
    if not len(sums):
        return line
    line["cpu_seconds"] = round(tally.seconds[setting.overrides], 2)
    if left_out:
        return line
    line["cycles"] = int(sums[:, 2].sum())
    line |= stated("tau", sums, accept_length)
    if len(lossless):
        line |= stated("gain", np.stack([sums[:, 0], lossless[:, 0]], 1), ratio)
    if not np.isnan(sums[:, 1]).any():
        line |= stated("distortion", sums, mean_nats, log=False)
    return line


def stated(name: str, rows: Any, statistic: Any, log: bool = True) -> dict[str, float | None]:
    """A value with the ends of its interval, Student's t over prompts; nothing where it is not
    known."""
    estimated = estimate(rows, statistic, log=log)
    if estimated is None:
        return {}
    low, high = estimated.interval() or (None, None)
    return {name: estimated.value, f"{name}_low": low, f"{name}_high": high}


def is_pareto(frame: pd.DataFrame) -> list[bool]:
    """Of each row whether no other row keeps at least as much with at most its distortion, and more
    of one of them. The limit and rows without a distortion are not compared."""
    known = frame[frame["distortion"].notna() & (frame["rule"] != LIMIT)]
    tau, distortion = known["tau"], known["distortion"]
    marks = []
    for place, row in frame.iterrows():
        no_worse = (tau >= row["tau"]) & (distortion <= row["distortion"])
        better = (tau > row["tau"]) | (distortion < row["distortion"])
        earlier = known.index < place  # of equal rows the first counts
        is_beaten = (no_worse & (better | earlier)).any()
        marks.append(place in known.index and not is_beaten)
    return marks


def table_of(
    settings: Sequence[Setting], tally: Tally, speeds: Mapping[Overrides, float]
) -> pd.DataFrame:
    """All settings, the largest modelled speed or accept length first, those that were left out
    last."""
    lossless = next(tally.sums(each.overrides) for each in settings if each.rule == LOSSLESS)
    frame = pd.DataFrame([line_of(setting, tally, speeds, lossless) for setting in settings])
    frame = frame.reindex(columns=[name for name in COLUMNS if name != "pareto"])
    values = [name for name in COLUMNS if name.startswith(("tau", "gain", "distortion", "speed"))]
    frame[values] = frame[values].astype(float)
    frame.insert(COLUMNS.index("pareto"), "pareto", is_pareto(frame))
    by = ["speed_modelled", "tau"] if speeds else ["tau"]
    return frame.sort_values(by, ascending=False, kind="stable", ignore_index=True)


def printed(frame: pd.DataFrame) -> None:
    """Print the table, and why settings were left out: a line for each rule and reason."""
    further = {
        "speed_modelled": ("÷ plain, modelled", ".2f"),
        "tau_decoded": ("τ decoded", ".2f"),
        "distortion_decoded": ("D decoded", ".4f"),
    }
    shown = [name for name in further if frame[name].notna().any()]
    heads = ("rule", "setting", "τ", "÷ lossless", "D (nats per token)", "Pareto")
    table = Table(*heads, *(further[name][0] for name in shown))
    for row in frame[frame["tau"].notna()].to_dict("records"):
        table.add_row(
            row["rule"],
            row["setting"],
            with_half(row, "tau", ".2f"),
            with_half(row, "gain", ".3f"),
            number(row["distortion"], ".4f"),
            "*" if row["pareto"] else "",
            *(number(row[name], further[name][1]) for name in shown),
        )
    console().print(table)
    for column, words in (("left_out", ""), ("no_distortion", "no D, ")):
        reasons = frame[frame[column] != ""]
        for (rule, reason), rows in reasons.groupby(["rule", column], sort=False):
            settings = f" ({len(rows)} settings)" if len(rows) > 1 else ""
            line = f"- {rule}{settings}: {words}{reason}"
            console().print(line, highlight=False, soft_wrap=True)


def number(value: float, form: str) -> str:
    """A number, or a dash where it is not known."""
    return "—" if pd.isna(value) else format(value, form)


def with_half(row: Mapping[Any, Any], name: str, form: str) -> str:
    """A value ± half of its interval; the value alone of one prompt."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    value = number(row[name], form)
    return value if pd.isna(low) else f"{value} ± {number((high - low) / 2, form)}"


def screen(words: Sequence[str]) -> tuple[pd.DataFrame, Tally, Path]:
    """Screen what a command line asks for, and write it: the table, what it was made of, and the
    folder of the files. Raises ConfigError, ModelError, ContextsError."""
    config, overrides = parted(words, "screen")
    with composer(words) as hydra:
        return _screened(Screening.from_args(config), overrides, hydra)


def _screened(
    options: Screening, overrides: Sequence[str], hydra: Composer
) -> tuple[pd.DataFrame, Tally, Path]:
    if options.check and options.contexts is not None:
        raise ConfigError("check: needs the models, which contexts= does without; give one of them")
    words = on_base(overrides, options.base)
    rest = [word for word in words if not word.startswith("-") and not is_of_rule(word)]
    names_rule = any(map(is_of_rule, overrides))
    if names_rule and options.rules is not None:
        raise ConfigError("rules: beside rule=NAME that rule alone is screened; give one of them")
    settings = list(named(hydra, words, options) if names_rule else listed(options))
    shared = hydra.settings(rest)
    cost, folder = shared.cost, shared.output.dir
    check_writable(folder, "output.dir")
    if not settings and (options.record is None or options.check):
        raise ConfigError("rules: empty, which only record=FILE alone is for; give names, or null")
    if options.contexts is not None and (options.record is not None or cost is not None):
        raise ConfigError(
            "contexts: replaces the decode, of which record= and cost= are; give one of them"
        )
    from bench.run import screening  # only here: it costs torch

    chosen = [setting.overrides for setting in settings]
    if options.contexts is not None:
        tally = screening.replayed(contexts_file(options.contexts), hydra, rest, chosen)
    else:
        tally = screening.decoded(rest, chosen, options.batch, options.record, options.top)
    if not settings:
        return pd.DataFrame(columns=COLUMNS), tally, folder
    frame = table_of(settings, tally, {} if cost is None else screening.speeds(tally, cost))
    if options.check:
        tried = best(settings, frame, options.check)
        values = screening.checked(hydra, rest, [setting.overrides for setting in tried])
        for setting in tried:
            is_row = (frame["rule"] == setting.rule) & (frame["setting"] == setting.label)
            for name, value in values.get(setting.overrides, {}).items():
                frame.loc[is_row, f"{name}_decoded"] = value
    write(frame, folder)
    return frame, tally, folder


def write(frame: pd.DataFrame, folder: Path) -> None:
    """screen.csv and screen.png."""
    from plots.screen import draw

    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "screen.csv", index=False)
    draw(frame).savefig(folder / "screen.png", dpi=160)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 a prompt failed, 2 the command is wrong."""
    words = list(sys.argv[1:] if argv is None else argv)

    def body() -> int:
        if answered("screen", words):
            return 0
        began = time.process_time()
        frame, tally, folder = screen(words)
        if len(frame):
            printed(frame)
            written = f"; written: {folder / 'screen.csv'}, screen.png"
        else:
            written = ", recorded"
        if tally.source:
            console().print(f"contexts: {tally.source}", highlight=False, soft_wrap=True)
        console().print(
            f"{len(set(tally.prompts))} prompts, {len(tally.rows)} settings, "
            f"{time.process_time() - began:.0f} CPU seconds, loading included{written}",
            soft_wrap=True,
        )
        for line in tally.failed.values():
            print(f"failed: {line}", file=sys.stderr)
        return 1 if tally.failed else 0

    return run_command(body)


if __name__ == "__main__":
    sys.exit(main())
