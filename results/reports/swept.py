"""A rule that the command line names, in the rows of a report: its name, and the values of its threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from results.reports.axes import SETTING, Axes, Entry, Frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

RULE = "RULE"
"""What stands for the rule's name in titles and labels."""


class Sweep(Frozen):
    """Rows whose rule the command line names (`rule=NAME`), and which of its options is swept.

    rows     labels of these rows.
    option   the option; "": the rule's only option that is a fraction, none if it has no such option.
    values   its values; empty: `spread` around the default.
    """

    rows: tuple[str, ...]
    option: str = ""
    values: tuple[float, ...] = ()

    def threshold(self, rule: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        """The swept option and its values, for a rule with these options and defaults; ("", ()) where nothing is
        swept. Raises ValueError, one line, where it has to be named."""
        fractions = [name for name, value in rule.items() if isinstance(value, float)]
        how = "report.sweep.option=NAME 'report.sweep.values=[0.2,0.4]'"
        if not self.option and len(fractions) > 1:
            raise ValueError(f"rule={rule['name']}: which of {', '.join(fractions)} is to be swept? Give {how}")
        option = self.option or next(iter(fractions), "")
        if option and option not in rule:
            raise ValueError(f"report.sweep.option={option}: rule={rule['name']} has no such option; it has "
                             f"{', '.join(name for name in rule if name != 'name')}")
        if not option or self.values:
            return option, self.values
        if not isinstance(rule[option], int | float) or not rule[option]:
            raise ValueError(f"rule.{option}={rule[option]}: no value to spread others around: give {how}")
        return option, spread(rule[option])


def spread(value: float) -> tuple[float, ...]:
    """Five values around a default, fewer where three digits do not tell them apart: below 1 in thirds towards 0 and 1,
    else by factors of 2."""
    if 0 < value < 1:
        values = [value / 3, 2 * value / 3, value, 1 - 2 * (1 - value) / 3, 1 - (1 - value) / 3]
        return tuple(dict.fromkeys(float(f"{one:.3g}") for one in values))
    return tuple(float(f"{factor * value:.3g}") for factor in (0.25, 0.5, 1, 2, 4))


def swept(axes: Axes, rows: Sequence[str], option: str, values: Sequence[float]) -> Axes:
    """The axes with a setting for each value of `rule.OPTION`, in these rows of the axis that has them."""
    if not values:
        return axes
    [axis] = [name for name, entries in axes.items() if set(rows) <= {entry.label for entry in entries}]
    others = [_without(entry, axis, rows) for entry in axes[SETTING]]
    mine = [Entry(label=f"{option} = {value:g}", value=value, overrides=(f"rule.{option}={value:g}",),
                  only={axis: tuple(rows)}) for value in values]
    return {**axes, SETTING: (*(entry for entry in others if entry.only[axis]), *mine)}


def named(axes: Axes, name: str) -> Axes:
    """The axes with the rule's name in every label."""
    return {axis: tuple(entry.model_copy(update={
        "label": entry.label.replace(RULE, name),
        "only": {other: tuple(label.replace(RULE, name) for label in labels) for other, labels in entry.only.items()}})
        for entry in entries) for axis, entries in axes.items()}


def _without(entry: Entry, axis: str, rows: Sequence[str]) -> Entry:
    return entry.model_copy(update={"only": entry.only | {axis: tuple(label for label in entry.only[axis]
                                                                      if label not in rows)}})
