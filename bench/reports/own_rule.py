"""The rule that the command line names, in a report with rows for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from bench.reports.overrides import key_of
from results.reports.swept import RULE, named, swept

if TYPE_CHECKING:
    from bench.config.compose import Composer
    from results.reports.spec import FigureSpec, ReportSpec, TableSpec


def takes_rule(spec: ReportSpec) -> bool:
    return getattr(spec, "sweep", None) is not None


def with_rule(spec: TableSpec | FigureSpec, hydra: Composer, overrides: Sequence[str]) -> TableSpec | FigureSpec:
    """The report with the rule that `overrides` name and its settings; unchanged without one. An option that they set
    is not swept. Raises ValueError where the swept option has to be named."""
    given = {key_of(line): line.partition("=")[2] for line in overrides}
    sweep = getattr(spec, "sweep", None)
    if sweep is None or "rule" not in given:
        return spec
    hydra.check_option("rule", given["rule"])
    if any(key.startswith("rule.") for key in given) and not sweep.option:
        option, values = "", ()
    else:
        option, values = sweep.threshold(hydra.section("rule", given["rule"]))
    axes = named(swept(spec.axes, sweep.rows, option, values), given["rule"])
    name, title = f"{spec.name}_{given['rule']}", spec.title.replace(RULE, given["rule"])
    return spec.model_copy(update={"axes": axes, "name": name, "title": title})


def lacking_rule(spec: ReportSpec, overrides: Sequence[str]) -> str:
    """Why a report with rows for a rule cannot run: none is named. Empty for all others."""
    if takes_rule(spec) and "rule" not in map(key_of, overrides):
        return f"needs a rule: report={spec.name} rule=NAME"
    return ""


def taken_by(fixed: Collection[str], key: str, spec: ReportSpec) -> bool:
    """Whether a point with these keys of its own takes an override: options of the rule go with the rule."""
    return key not in fixed and not (takes_rule(spec) and "rule" in fixed and key.startswith("rule."))
