"""Overrides as text: the scale of a report that they choose, and the rule that they name for its
rows."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bench.config.command import key_of
from methods import registry, user_yaml
from results.reports.choice import RULE, TASK, named, swept
from results.reports.scales import SCALES, Scale
from results.reports.spec import ReportSpec
from results.store.errors import redacted_word

if TYPE_CHECKING:
    from bench.config.compose import Composer
    from results.reports.choice import Sweep
    from results.reports.spec import FigureSpec, TableSpec

Spec = TypeVar("Spec", bound=ReportSpec)

LAYOUT = ("pairs", "rules", "scale", "tasks")
"""Keys that choose the scale of a report, or its rows, and are no part of a point."""
EXAMPLES = {"rule": "mars,typical", "task": "mini_chat,mini_gsm"}


@dataclass(frozen=True, slots=True)
class PairSelection:
    """The pairs of a report that are wanted, or all of a scale."""

    pairs: tuple[str, ...]
    scale: Scale

    @classmethod
    def from_overrides(cls, overrides: Sequence[str]) -> PairSelection:
        """From `pair=NAME`, or `pairs=[NAME,NAME]`, and `scale=NAME`. Raises ValueError for an
        unknown scale, and for pairs that are no list of names or are given twice."""
        values = values_of(overrides)
        name = values.get("scale", "embedded")
        scale = next((scale for scale in SCALES if scale == name), None)
        if scale is None:
            raise ValueError(f"scale={name}: unknown; one of {', '.join(SCALES)}")
        pair, text = values.get("pair"), values.get("pairs")
        if text is None:
            return cls(() if pair is None else (pair,), scale)
        if pair is not None:
            raise ValueError(f"pair={pair} pairs={text}: give one of the two")
        return cls(listed("pairs", text, "vicuna_13b,llama31_8b"), scale)

    def edition(self, spec: Spec) -> Spec:
        """This report on them. Raises ValueError where it has none."""
        return spec.edition(self.pairs, self.scale)


def listed(key: str, text: str, example: str) -> tuple[str, ...]:
    """The names in `KEY=[NAME,NAME]`. Raises ValueError for anything else."""
    try:
        names = user_yaml.parse(text)
    except ValueError as error:
        raise ValueError(f"{key}={text[:60]}: {error}") from error
    if not isinstance(names, list) or {type(name) for name in names} != {str}:
        raise ValueError(f"{key}={text}: must be a list of names: {key}=[{example}]")
    return tuple(dict.fromkeys(names))


def of_points(overrides: Sequence[str]) -> list[str]:
    """The overrides without those that only choose the scale."""
    return [line for line in overrides if key_of(line) not in LAYOUT]


def values_of(overrides: Sequence[str]) -> dict[str, str]:
    """Key -> its value, as text."""
    return {key_of(line): line.partition("=")[2] for line in overrides}


def made_by(*overrides: str) -> str:
    """The command that these overrides make, as a shell takes it, without secrets."""
    return shlex.join(["python", "-m", "bench", *map(redacted_word, overrides)])


def takes_rule(spec: ReportSpec) -> bool:
    return getattr(spec, "sweep", None) is not None


def takes_task(spec: ReportSpec) -> bool:
    return any(entry.label == TASK for axis in spec.axes.values() for entry in axis)


def with_names(
    spec: TableSpec | FigureSpec, hydra: Composer, overrides: Sequence[str]
) -> TableSpec | FigureSpec:
    """The report with the rules and tasks that `overrides` name, as `rule=NAME` or `rules=[NAME,
    NAME]`. An option of the rule that they set is not swept. Raises ValueError for names that the
    report does not take, and where the swept option has to be named."""
    values = values_of(overrides)
    with_base = values_of(spec.base) | values
    takes = {"rule": takes_rule(spec), "task": takes_task(spec)}
    for key, is_taken in takes.items():
        if f"{key}s" in values and (not is_taken or key in values):
            reason = f"{key}={values[key]} is given too" if is_taken else "it takes none"
            raise ValueError(f"{key}s={values[f'{key}s']}: report={spec.name}: {reason}")
    rules, tasks = (
        names_of(key, with_base, hydra) if is_taken else () for key, is_taken in takes.items()
    )
    sections = [hydra.section("rule", rule) for rule in rules]
    titles = titled(rules)
    options = [line for line in overrides if line.startswith("rule.")]
    if "rules" in values and options:
        raise ValueError(f"{options[0]}: of which of {', '.join(titles)}? Give rule=NAME")
    sweep: Sweep | None = getattr(spec, "sweep", None)
    thresholds = []
    if sweep is not None and (sweep.option or not options):
        thresholds = [sweep.threshold(section) for section in sections]
        check_values(sweep, rules, [option for option, _ in thresholds], hydra)
    axes = spec.axes
    if tasks:
        axes = named(axes, TASK, {name: chosen_by("task", name, with_base) for name in tasks})
    if sweep is None or not rules:
        return spec.model_copy(update={"axes": axes})
    chosen = {title: chosen_by("rule", rule, values) for title, rule in titles.items()}
    axes = named(axes, RULE, chosen)
    for title, (option, swept_values) in zip(titles, thresholds, strict=False):
        rows = [row.replace(RULE, title) for row in sweep.rows]
        axes = swept(axes, rows, option, swept_values)
    title, name = spec.title.replace(RULE, ", ".join(titles)), "_".join([spec.name, *titles])
    return spec.model_copy(update={"axes": axes, "name": name, "title": title})


def titled(rules: Sequence[str]) -> dict[str, str]:
    """What tables call each rule -> its name. Raises ValueError for two of one title."""
    titles: dict[str, str] = {}
    for rule in rules:
        title = registry.title("rules", rule)
        if title in titles:
            raise ValueError(f"rules: {titles[title]} and {rule} are both {title}; rename one")
        titles[title] = rule
    return titles


def chosen_by(key: str, name: str, values: Mapping[str, str]) -> str:
    """The override by which a row chooses its own of `KEYs=[NAME,NAME]`; "" for `KEY=NAME`."""
    return f"{key}={name}" if f"{key}s" in values else ""


def names_of(key: str, values: Mapping[str, str], hydra: Composer) -> tuple[str, ...]:
    """The names in `KEY=NAME` or `KEYs=[NAME,NAME]`; none where neither is given. Raises ValueError
    for an unknown one."""
    text = values.get(f"{key}s")
    alone = (values[key],) if key in values else ()
    names = alone if text is None else listed(f"{key}s", text, EXAMPLES[key])
    for name in names:
        hydra.check_option(key, name)
    return names


def check_values(
    sweep: Sweep, rules: Sequence[str], options: Sequence[str], hydra: Composer
) -> None:
    """Raises ValueError for one of `report.sweep.values` that a rule refuses; `options`: the swept
    one of each rule, "" for none."""
    for rule, option in zip(rules, options, strict=True):
        for value in sweep.values if option else ():
            refused = hydra.candidate([f"rule={rule}", f"rule.{option}={value:g}"]).refused
            if refused.startswith(f"rule.{option}="):
                raise ValueError(refused.replace(f"rule.{option}", "report.sweep.values", 1))


def lacking_rule(spec: ReportSpec, overrides: Sequence[str]) -> str:
    """Why a report with rows for a rule cannot run: none is named. Empty for all others."""
    if takes_rule(spec) and not {"rule", "rules"} & set(map(key_of, overrides)):
        return f"needs a rule: report={spec.name} rule=NAME"
    return ""


def taken_by(fixed: Collection[str], key: str, spec: ReportSpec) -> bool:
    """Whether a point with these keys of its own takes an override: options of the rule go with the
    rule."""
    return key not in fixed and not (
        takes_rule(spec) and "rule" in fixed and key.startswith("rule.")
    )
