"""Overrides as text: the scale of a report that they choose, and the rule that they name for its
rows."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bench.config.command import key_of
from methods import user_yaml
from results.reports.choice import RULE, named, swept
from results.reports.scales import SCALES, Scale
from results.reports.spec import ReportSpec
from results.store.errors import redacted_word

if TYPE_CHECKING:
    from bench.config.compose import Composer
    from results.reports.spec import FigureSpec, TableSpec

Spec = TypeVar("Spec", bound=ReportSpec)

LAYOUT = ("pairs", "scale")
"""Keys that choose the scale of a report and are no part of a point."""


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
        try:
            pairs = user_yaml.parse(text)
        except ValueError as error:
            raise ValueError(f"pairs={text[:60]}: {error}") from error
        if not isinstance(pairs, list) or {type(pair) for pair in pairs} != {str}:
            raise ValueError(
                f"pairs={text}: must be a list of names: pairs=[vicuna_13b,llama31_8b]"
            )
        return cls(tuple(dict.fromkeys(pairs)), scale)

    def edition(self, spec: Spec) -> Spec:
        """This report on them. Raises ValueError where it has none."""
        return spec.edition(self.pairs, self.scale)


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


def with_rule(
    spec: TableSpec | FigureSpec, hydra: Composer, overrides: Sequence[str]
) -> TableSpec | FigureSpec:
    """The report with the rule that `overrides` name and its settings; unchanged without one. An
    option that they set is not swept. Raises ValueError where the swept option has to be named."""
    keys = values_of(overrides)
    rule, sweep = keys.get("rule"), getattr(spec, "sweep", None)
    if sweep is None or rule is None:
        return spec
    hydra.check_option("rule", rule)
    option, values = "", ()
    if sweep.option or not any(key.startswith("rule.") for key in keys):
        option, values = sweep.threshold(hydra.section("rule", rule))
    for value in sweep.values if option else ():
        refused = hydra.candidate([f"rule={rule}", f"rule.{option}={value:g}"]).refused
        if refused.startswith(f"rule.{option}="):
            raise ValueError(refused.replace(f"rule.{option}", "report.sweep.values", 1))
    axes = named(swept(spec.axes, sweep.rows, option, values), rule)
    title = spec.title.replace(RULE, rule)
    return spec.model_copy(update={"axes": axes, "name": f"{spec.name}_{rule}", "title": title})


def lacking_rule(spec: ReportSpec, overrides: Sequence[str]) -> str:
    """Why a report with rows for a rule cannot run: none is named. Empty for all others."""
    if takes_rule(spec) and "rule" not in map(key_of, overrides):
        return f"needs a rule: report={spec.name} rule=NAME"
    return ""


def taken_by(fixed: Collection[str], key: str, spec: ReportSpec) -> bool:
    """Whether a point with these keys of its own takes an override: options of the rule go with the
    rule."""
    return key not in fixed and not (
        takes_rule(spec) and "rule" in fixed and key.startswith("rule.")
    )
