"""`python -m bench.screen [KEY=VALUE …]`: accept length and distortion of every rule, expected on
the drafts of one lossless decode (conf/screen.yaml, docs/screen.md)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt
from rich.table import Table

from bench.cli.command import Options, run_command
from bench.config.compose import Composer, composer
from bench.config.environment import code_digest
from bench.config.errors import ConfigError
from bench.config.help import answered
from bench.config.paths import PROJECT, portable
from bench.config.section import check_known, parse
from bench.run.console import console
from methods import registry
from methods.batch import Generation
from methods.engine.source import ModelError
from methods.outside import installed
from results.metrics.delta import estimate, ratio
from results.store.errors import StoreError, one_line
from results.store.files import check_writable

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.decode import Limits, Request
    from methods.method import Method
    from methods.rules.base import Rule
    from methods.screen import Screened
    from results.metrics.cost import Profile
    from tasks.base import Prompt

Floats = NDArray[np.float64]
PLAIN_CYCLE = Generation(committed=[1], nodes=[0], levels=[0])
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

    overrides  that choose it, `rule=NAME` first.
    label      the options that tell it from the rule's other settings.
    """

    rule: str
    label: str
    overrides: tuple[str, ...]


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
        rule = tuple(line for line in point.overrides if is_of_rule(line))
        rest = {line for line in point.overrides if not is_of_rule(line)}
        if swept := rest - set(overrides):
            raise ConfigError(
                f"-m {min(swept)}: one screen is one decode; sweep rule and its options alone"
            )
        label = ", ".join(line.removeprefix("rule.") for line in rule if line[4] == ".")
        yield Setting(registry.title("rules", point.config["rule"]["name"]), label, rule)


def is_of_rule(line: str) -> bool:
    """Whether an override chooses the rule or sets one of its options."""
    return line.lstrip("+").partition("=")[0].partition(".")[0] == "rule"


def with_base(overrides: Sequence[str], base: Sequence[str]) -> list[str]:
    """The overrides behind those of `base` that they leave to it."""
    keys = {line.partition("=")[0] for line in overrides}
    drafts = keys & {"drafter", "method"}

    def is_left(line: str) -> bool:
        key = line.partition("=")[0]
        return key not in keys and not (drafts and key.startswith("draft"))

    return [*filter(is_left, base), *overrides]


@dataclass(slots=True)
class Result:
    """What one setting does on the prompts.

    rows      [prompts, 5] float64: expected tokens, expected nats, cycles, emitted tokens of the
              lossless answer, and those of its first tokens that the prefill gave.
    left_out  why it was not screened; empty where it was.
    no_law    why it has no distortion; empty where it has.
    seconds   of CPU that the rule took.
    """

    setting: Setting
    rows: Floats
    left_out: str = ""
    no_law: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Found:
    """What all settings do in each request, a turn of a prompt.

    answers  the prompt of each request.
    emitted  tokens that each emitted.
    rows     of each setting and request: expected tokens, expected nats, cycles.
    refused  why a setting was not screened, or why its numbers are not known.
    no_law   why a setting has no distortion.
    seconds  of CPU that the rule of a setting took.
    failed   a line for each prompt that failed.
    generations  of the lossless decode, of each request; none of a replay.
    cells    the cell of each setting; none of a replay.
    source   where the contexts of a replay came from.
    """

    answers: list[str] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)
    rows: dict[Setting, list[Floats]] = field(default_factory=dict)
    refused: dict[Setting, str] = field(default_factory=dict)
    no_law: dict[Setting, str] = field(default_factory=dict)
    seconds: dict[Setting, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    cells: dict[Setting, Cell] = field(default_factory=dict)
    source: str = ""

    def add(
        self, answers: Sequence[str], emitted: Sequence[int], screens: Mapping[Setting, Screened]
    ) -> None:
        """Take the requests of one decode."""
        self.answers += answers
        self.emitted += emitted
        for setting, screen in screens.items():
            self.rows.setdefault(setting, []).extend(screen.rows.numpy())
            self.seconds[setting] = self.seconds.get(setting, 0.0) + screen.seconds
            if screen.unknown:
                self.refused[setting] = screen.unknown
            if screen.no_law:
                self.no_law[setting] = screen.no_law

    def drop(self, answer: str) -> None:
        """Forget a prompt that failed in one of its turns."""
        stays = [place for place, name in enumerate(self.answers) if name != answer]
        self.answers = [self.answers[place] for place in stays]
        self.emitted = [self.emitted[place] for place in stays]
        self.generations = [self.generations[place] for place in stays]
        self.rows = {
            setting: [rows[place] for place in stays] for setting, rows in self.rows.items()
        }

    def result(self, setting: Setting) -> Result:
        """The setting's sums, a row for each prompt."""
        sums: dict[str, Floats] = {}
        requests = zip(self.answers, self.emitted, self.rows.get(setting, ()), strict=False)
        for answer, emitted, row in requests:
            first = 1.0
            sums[answer] = sums.get(answer, np.zeros(5)) + np.array([*row, emitted, first])
        rows = np.array(list(sums.values())) if sums else np.empty((0, 5))
        refused, no_law = self.refused.get(setting, ""), self.no_law.get(setting, "")
        return Result(setting, rows, refused, no_law, self.seconds.get(setting, 0.0))


def decoded(rest: Sequence[str], settings: Sequence[Setting], options: Screening) -> Found:
    """Decode the prompts losslessly and put every cycle before the rules; write what they saw where
    that is asked for. Raises ModelError, TaskError."""
    from bench.cli.one_cell import open_cell
    from bench.run.answer import answer, limits_of, stream_name
    from bench.run.models import ModelPool, NativeMethod
    from methods.contexts import Recorder
    from methods.screen import host, screened
    from results.store.sample import FailedSample

    found, pool = Found(), ModelPool()
    cell, lossless = open_cell([*rest, f"rule={LOSSLESS}"], pool)
    task = cell.load_task()
    limits = limits_of(cell, lossless.target, task)
    methods: dict[Setting, Method] = {}
    for setting in settings:
        try:
            found.cells[setting], methods[setting] = open_cell([*rest, *setting.overrides], pool)
        except (ConfigError, ModelError, ValueError) as error:
            found.refused[setting] = one_line(error)
    hosting = host(lossless, list(methods.values()))
    rules = {setting: method.rule for setting, method in methods.items()}
    recorder = None if options.record is None else Recorder(options.top)

    prompts = task.prompts(cell.n, cell.seed)
    places = {stream_name(cell, task, prompt, 0): place for place, prompt in enumerate(prompts)}
    failed: dict[int, str] = {}

    def generate(requests: Sequence[Request], limits: Limits) -> list[Generation]:
        answers = [request.key.rpartition("/")[0] for request in requests]
        watching = [] if recorder is None else [recorder]
        if recorder is not None:
            recorder.begin(requests, [places[f"{name}/0"] for name in answers])
        generations, screens = screened(hosting, rules, requests, limits, watching)
        if recorder is not None:
            recorder.end(generations)
        emitted = [len(generation.output_ids) for generation in generations]
        found.add(answers, emitted, screens)
        found.generations += generations
        return generations

    def stream(prompt: Prompt, turn: int) -> str:
        return stream_name(cell, task, prompt, turn)

    for start in range(0, len(prompts), options.batch):
        some = prompts[start : start + options.batch]
        answers = answer(NativeMethod(hosting), some, limits, stream, decode=generate)
        for place, (name, given) in enumerate(answers.items(), start):
            if isinstance(given, FailedSample):
                failed[place] = f"{name}: {given.error}"
                found.drop(stream_name(cell, task, prompts[place], 0).rpartition("/")[0])
    found.failed = list(failed.values())
    if recorder is not None and options.record is not None:
        said = said_of(cell, lossless)
        recorder.write(options.record, hosting.sampling, limits, failed, **said)
    return found


def said_of(cell: Cell, method: Method) -> dict[str, Any]:
    """What a file of contexts says of models and task."""
    roles = [role for role in cell.roles if role != "target"]
    return {
        "vocab": method.target.vocab_size,
        "target": portable(cell.pair.target.source),
        "draft": portable(cell.pair.checkpoint(roles[0]).source) if roles else None,
        "fingerprints": cell.fingerprints(),
        "task": cell.task.name,
        "code": code_digest(),
    }


def shipped_or_own(contexts: Path) -> Path:
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


def replayed(
    file: Path, hydra: Composer, rest: Sequence[str], settings: Sequence[Setting]
) -> Found:
    """Put the contexts of a file before the rules. Raises ContextsError."""
    from methods.contexts import Contexts
    from methods.rules.base import DraftCapabilities

    contexts, found = Contexts(file), Found()
    said = contexts.description
    found.source = contexts.origin
    drafts = DraftCapabilities(
        "recorded", contexts.has_q, said.sampled, chain=said.chain, distinct=not said.replacement
    )
    rules: dict[Setting, Rule] = {}
    for setting in settings:
        try:
            config = hydra.point([*rest, *setting.overrides]).config
            rule = parse(registry.rule, config, "rule", registry.names("rules")).options
            rule.check(drafts, contexts.sampling)
            rules[setting] = contexts.bound(rule)
        except (ConfigError, ValueError) as error:
            found.refused[setting] = one_line(error)
    answers = [str(answer) for answer in contexts.answers]
    found.add(answers, contexts.emitted, contexts.screened(rules))
    return found


def speeds(found: Found, profile: Profile) -> dict[Setting, float]:
    """Seconds per token of plain decoding ÷ those of each setting, on the machine of a cost
    profile, without the prompt: its cycles' seconds over the tokens they are expected to emit. None
    for a setting whose rule or drafter the profile does not price."""
    from bench.run.cost_clock import clocks_of
    from results.store.sample import Sample

    speeds: dict[Setting, float] = {}
    for setting, cell in found.cells.items():
        try:
            clock, plain_clock = clocks_of(profile, cell)
            cycles = sum(
                float(clock.cycles(cast(Sample, generation)).sum())
                for generation in found.generations
            )
        except StoreError:
            continue
        plain = float(plain_clock.cycles(cast(Sample, PLAIN_CYCLE)).sum())
        tokens = sum(float(row[0]) for row in found.rows[setting])
        speeds[setting] = plain * tokens / cycles
    return speeds


def checked(
    hydra: Composer, rest: Sequence[str], settings: Sequence[Setting]
) -> dict[Setting, dict[str, float | None]]:
    """τ and D of the settings decoded by themselves, as `python -m bench` does it."""
    from bench.run.run import run
    from bench.run.session import Session

    points = [hydra.point([*rest, *setting.overrides, "timed=0"]) for setting in settings]
    session = Session(points[0].settings)
    cells = [point.cell for point in points]
    session.check(cells)
    run(cells, session)
    session.print_failures(cells)
    found: dict[Setting, dict[str, float | None]] = {}
    for setting, cell in zip(settings, cells, strict=True):
        summary = session.compared(cell)
        if summary is not None:
            found[setting] = {name: summary.value(name) for name in ("tau", "distortion")}
    return found


def best(results: Sequence[Result], frame: pd.DataFrame, number: int) -> list[Setting]:
    """Lossless decoding, and the settings of the Pareto set with the largest modelled speed, or
    accept length where none is modelled."""
    by_name = {(one.setting.rule, one.setting.label): one.setting for one in results}
    rows = frame[frame["pareto"] & (frame["rule"] != LOSSLESS)].head(number)
    names = [(LOSSLESS, ""), *zip(rows["rule"], rows["setting"], strict=True)]
    return [by_name[name] for name in names]


def accept_length(sums: Floats) -> Floats:
    """Expected tokens per cycle."""
    return np.asarray(sums[..., 0] / sums[..., 2])


def mean_nats(sums: Floats) -> Floats:
    """Nats per token. The first token of an answer comes from the prefill and loses nothing."""
    share = (sums[..., 3] - sums[..., 4]) / sums[..., 3]
    return np.asarray(sums[..., 1] / sums[..., 0] * share)


def line_of(
    result: Result, lossless: Result | None, speeds: Mapping[Setting, float]
) -> dict[str, Any]:
    """The row of a setting in screen.csv, without `pareto`."""
    line: dict[str, Any] = {
        "rule": result.setting.rule,
        "setting": result.setting.label,
        "left_out": result.left_out,
        "no_distortion": result.no_law,
        "prompts": len(result.rows),
        "cpu_seconds": round(result.seconds, 2) if len(result.rows) else None,
        "speed_modelled": speeds.get(result.setting),
    }
    if result.left_out or not len(result.rows):
        return line
    line["cycles"] = int(result.rows[:, 2].sum())
    line |= stated("tau", result.rows, accept_length)
    if lossless is not None:
        # over the tokens of lossless decoding on the same drafts
        both = np.stack([result.rows[:, 0], lossless.rows[:, 0]], 1)
        line |= stated("gain", both, ratio)
    if not np.isnan(result.rows[:, 1]).any():
        line |= stated("distortion", result.rows, mean_nats, log=False)
    return line


def stated(name: str, rows: Any, statistic: Any, log: bool = True) -> dict[str, float | None]:
    """A value with the ends of its interval, Student's t over prompts."""
    found = estimate(rows, statistic, log=log)
    ends = None if found is None else found.interval()
    return {
        name: None if found is None else found.value,
        f"{name}_low": None if ends is None else ends[0],
        f"{name}_high": None if ends is None else ends[1],
    }


def is_pareto(frame: pd.DataFrame) -> list[bool]:
    """Of each row whether no other row keeps at least as much with at most its distortion, and more
    of one of them. The limit and rows without a distortion are not compared."""
    known = frame[frame["distortion"].notna() & (frame["rule"] != LIMIT)]
    marks = []
    for place, row in frame.iterrows():
        if place not in known.index:
            marks.append(False)
            continue
        others = known.drop(index=place)
        equal = (others["tau"] == row["tau"]) & (others["distortion"] == row["distortion"])
        others = others[~equal | (others.index < place)]  # of equal ones the first
        no_worse = (others["tau"] >= row["tau"]) & (others["distortion"] <= row["distortion"])
        better = (others["tau"] > row["tau"]) | (others["distortion"] < row["distortion"])
        marks.append(not (no_worse & (better | equal.reindex(others.index))).any())
    return marks


def table_of(results: Sequence[Result], speeds: Mapping[Setting, float]) -> pd.DataFrame:
    """All settings, the largest modelled speed or accept length first, those that were left out
    last."""
    lossless = next((one for one in results if one.setting.rule == LOSSLESS), None)
    frame = pd.DataFrame([line_of(result, lossless, speeds) for result in results])
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
    shown = {name: title for name, (title, _) in further.items() if frame[name].notna().any()}
    heads = ("rule", "setting", "τ", "÷ lossless", "D (nats per token)", "Pareto")
    table = Table(*heads, *shown.values())
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


def screen(words: Sequence[str]) -> tuple[pd.DataFrame, Found, Path]:
    """Screen what a command line asks for, and write it: the table, what it was made of, and the
    folder of the files. Raises ConfigError, ModelError, ContextsError."""
    with composer(words, "screen") as conf:
        known = conf.point([], resolve=False).config
        mine = [word for word in words if word.partition("=")[0] in known]
        options = Screening.from_args(conf.point(mine, resolve=False).config)
    overrides = [word for word in words if word not in mine]
    with composer(words) as hydra:
        return _screened(options, overrides, hydra)


def _screened(
    options: Screening, overrides: Sequence[str], hydra: Composer
) -> tuple[pd.DataFrame, Found, Path]:
    if options.check and options.contexts is not None:
        raise ConfigError("check: needs the models, which contexts= does without; give one of them")
    given = with_base(overrides, options.base)
    rest = [line for line in given if not line.startswith("-") and not is_of_rule(line)]
    names_rule = any(is_of_rule(line) for line in overrides)
    if names_rule and options.rules is not None:
        raise ConfigError("rules: beside rule=NAME that rule alone is screened; give one of them")
    settings = list(named(hydra, given, options) if names_rule else listed(options))
    cost, folder = hydra.settings(rest).cost, hydra.settings(rest).output.dir
    check_writable(folder, "output.dir")
    if not settings and (options.record is None or options.check):
        raise ConfigError("rules: empty, which only record=FILE alone is for; give names, or null")
    if options.contexts is None:
        found = decoded(rest, settings, options)
    elif options.record is None and cost is None:
        found = replayed(shipped_or_own(options.contexts), hydra, rest, settings)
    else:
        raise ConfigError(
            "contexts: replaces the decode, of which record= and cost= are; give one of them"
        )
    if not settings:
        return pd.DataFrame(columns=COLUMNS), found, folder
    results = [found.result(setting) for setting in settings]
    frame = table_of(results, {} if cost is None else speeds(found, cost))
    if options.check:
        for setting, values in checked(hydra, rest, best(results, frame, options.check)).items():
            is_row = (frame["rule"] == setting.rule) & (frame["setting"] == setting.label)
            for name, value in values.items():
                frame.loc[is_row, f"{name}_decoded"] = value
    write(frame, folder)
    return frame, found, folder


def write(frame: pd.DataFrame, folder: Path) -> None:
    """screen.csv and screen.png."""
    from plots.screen import draw

    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "screen.csv", index=False)
    draw(frame).savefig(folder / "screen.png", dpi=160)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 a prompt failed, 2 the command is wrong."""
    given = list(sys.argv[1:] if argv is None else argv)

    def body() -> int:
        if answered("screen", given):
            return 0
        began = time.process_time()
        frame, found, folder = screen(given)
        if len(frame):
            printed(frame)
            written = f"; written: {folder / 'screen.csv'}, screen.png"
        else:
            written = ", recorded"
        if found.source:
            console().print(f"contexts: {found.source}", highlight=False, soft_wrap=True)
        console().print(
            f"{len(set(found.answers))} prompts, {len(found.rows)} settings, "
            f"{time.process_time() - began:.0f} CPU seconds, loading included{written}",
            soft_wrap=True,
        )
        for line in found.failed:
            print(f"failed: {line}", file=sys.stderr)
        return 1 if found.failed else 0

    return run_command(body)


if __name__ == "__main__":
    sys.exit(main())
