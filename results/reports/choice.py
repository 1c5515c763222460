"""Rows that choose among settings, so that relaxed and lossless rules are compared at their best
alike; and rows whose rule the command line names, with the values of its threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from pydantic import Field

from results.metrics.tau_gain import TEMPERATURES
from results.reports.axes import SETTING, Axes, Entry, Frozen

TEMPERATURE = "decoding.temperature="


class Choice(Frozen):
    """What a row chooses, and which row it is compared with.

    The setting of a row is the one with the largest `speedup_modelled` (`results.metrics.verdict`).
    Each half of the prompts selects for the other.

    axes              axes that are chosen and not shown: draft length, tree, threshold.
    lossless          label of the row over lossless methods, "best lossless".
    frontier          settings of `lossless` that are decoded and timed at lower temperatures, too;
                      every row is compared with the fastest of them that distorts no more, or with
                      plain decoding if that is faster. Each costs a cell a temperature: leave out
                      those that are far behind at the temperature asked for.
    lossless_greedy   that row at temperature 0, with which rows at temperature 0 are compared; "":
                      none.
    """

    axes: tuple[str, ...] = Field(default=(SETTING,), min_length=1)
    lossless: str
    lossless_greedy: str = ""
    frontier: tuple[str, ...] = ()


def with_frontier(axes: Mapping[str, Any], choice: Any, base: Sequence[str]) -> dict[str, Any]:
    """The axes as YAML gives them, with a row at each lower temperature than that of `base`:
    the settings of `choice.lossless` that `choice.frontier` names. Raises ValueError for a setting
    that the row does not have."""
    options = choice if isinstance(choice, Mapping) else {}
    wanted = options.get("frontier") or ()
    if not wanted or not isinstance(wanted, Sequence) or isinstance(wanted, str):
        return dict(axes)
    temperatures = [line.removeprefix(TEMPERATURE) for line in base if line.startswith(TEMPERATURE)]
    asked = float(temperatures[0]) if temperatures else 0.0
    extended = dict(axes)
    for name, axis in axes.items():
        rows = [
            _at(entry, t, wanted)
            for entry in axis
            if isinstance(entry, Mapping) and entry.get("label") == options.get("lossless")
            for t in TEMPERATURES
            if t < asked
        ]
        extended[name] = [*axis, *rows] if rows else axis
    return extended


def _at(entry: Mapping[str, Any], temperature: float, wanted: Sequence[str]) -> dict[str, Any]:
    """The row of these settings at another temperature."""
    settings = {
        variant["label"]: variant
        for variant in entry.get("variants", ())
        if isinstance(variant, Mapping) and "label" in variant
    }
    unknown = [label for label in wanted if label not in settings]
    if unknown:
        raise ValueError(
            f"choice.frontier: {', '.join(unknown)}: {entry['label']!r} has {', '.join(settings)}"
        )
    return {
        **entry,
        "label": frontier_label(temperature),
        "frontier": True,
        "variants": [settings[label] for label in wanted],
        "overrides": [*entry.get("overrides", ()), f"{TEMPERATURE}{temperature:g}"],
    }


def frontier_label(temperature: float) -> str:
    return f"lossless, T = {temperature:g}"


RULE, TASK = "RULE", "TASK"
"""What stands for the names of rules and tasks in titles and labels."""


class Sweep(Frozen):
    """Rows whose rule the command line names (`rule=NAME`), and which of its options is swept.

    rows     labels of these rows.
    option   the option; "": the rule's only option that is a fraction, none if it has no such
             option; None: the rule is as the command gives it.
    values   its values; empty: `spread` around the default.
    """

    rows: tuple[str, ...]
    option: str | None = ""
    values: tuple[float, ...] = ()

    def threshold(self, rule: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        """The swept option and its values, for a rule with these options and defaults; ("", ())
        where nothing is swept. Raises ValueError, one line, where it has to be named."""
        if self.option is None:
            return "", ()
        fractions = [name for name, value in rule.items() if isinstance(value, float)]
        if not self.option and len(fractions) > 1:
            raise ValueError(
                f"rule={rule['name']}: which of {', '.join(fractions)} is to be swept? Give "
                f"report.sweep.option={fractions[0]}, say"
            )
        option = self.option or next(iter(fractions), "")
        if option and option not in rule:
            raise ValueError(
                f"report.sweep.option={option}: rule={rule['name']} has no such option; it has "
                f"{', '.join(name for name in rule if name != 'name')}"
            )
        if not option or self.values:
            return option, self.values
        if not isinstance(rule[option], int | float) or not rule[option]:
            raise ValueError(
                f"rule.{option}={rule[option]}: no value to spread others around; give "
                "'report.sweep.values=[0.2,0.4]', say"
            )
        return option, spread(rule[option])


def spread(value: float) -> tuple[float, ...]:
    """Five values around a default, fewer where three digits do not tell them apart: below 1 in
    thirds towards 0 and 1, else by factors of 2."""
    if 0 < value < 1:
        values = [value / 3, 2 * value / 3, value, 1 - 2 * (1 - value) / 3, 1 - (1 - value) / 3]
        return tuple(dict.fromkeys(float(f"{number:.3g}") for number in values))
    return tuple(float(f"{factor * value:.3g}") for factor in (0.25, 0.5, 1, 2, 4))


def swept(axes: Axes, rows: Sequence[str], option: str, values: Sequence[float]) -> Axes:
    """The axes with a setting for each value of `rule.OPTION`, in these rows of the axis that has
    them."""
    if not values:
        return axes
    [axis] = [
        name for name, entries in axes.items() if set(rows) <= {entry.label for entry in entries}
    ]
    others = [_without(entry, axis, rows) for entry in axes[SETTING]]
    mine = [
        Entry(
            label=f"{option} = {value:g}",
            value=value,
            overrides=(f"rule.{option}={value:g}",),
            only={axis: tuple(rows)},
        )
        for value in values
    ]
    return {**axes, SETTING: (*(entry for entry in others if entry.only[axis]), *mine)}


def named(axes: Axes, stands: str, names: Mapping[str, str]) -> Axes:
    """The axes with an entry for each of the names in place of one whose label holds what `stands`
    for them. `names`: each with the override that chooses it, "" for none."""

    def labels_of(label: str) -> list[str]:
        return [label.replace(stands, name) for name in names] if stands in label else [label]

    def renamed(entry: Entry, label: str, name: str) -> Entry:
        chosen = (names[name],) if names[name] and stands in entry.label else ()
        only = {
            axis: tuple(chain.from_iterable(map(labels_of, labels)))
            for axis, labels in entry.only.items()
        }
        overrides = (*entry.overrides, *chosen)
        return entry.model_copy(update={"label": label, "overrides": overrides, "only": only})

    return {
        axis: tuple(
            renamed(entry, label, name)
            for entry in entries
            for label, name in zip(labels_of(entry.label), names, strict=False)
        )
        for axis, entries in axes.items()
    }


def _without(entry: Entry, axis: str, rows: Sequence[str]) -> Entry:
    return entry.model_copy(
        update={
            "only": entry.only
            | {axis: tuple(label for label in entry.only[axis] if label not in rows)}
        }
    )
