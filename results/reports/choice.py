"""Rows that choose among settings, so that relaxed and lossless rules are compared at their best alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from results.metrics.curve import TEMPERATURES
from results.reports.axes import SETTING, Frozen

TEMPERATURE = "decoding.temperature="


class Choice(Frozen):
    """What a row chooses, on which prompts, and which row it is compared with.

    The setting of a row is the one with the largest `answer_speedup_modelled` on selection prompts, which are not
    reported; of a lossless row at equal length (`results.metrics.selection`).

    axes              axes that are chosen and not shown: draft length, tree, threshold.
    prompts           prompts that select, spread evenly over the cell's; the others are reported. None: each half
                      selects for the other, and all are reported.
    lossless          label of the row over lossless methods, "best lossless".
    frontier          settings of `lossless` that are decoded at the other temperatures of the curve, too, without a
                      clock; every row is compared with the fastest of them there, or with plain decoding if that is
                      faster. Each costs eight cells: leave out those that are far behind at the temperature
                      asked for.
    lossless_greedy   that row at temperature 0, with which rows at temperature 0 are compared; "": none.
    """

    axes: tuple[str, ...] = Field(default=(SETTING,), min_length=1)
    prompts: int | None = Field(default=None, ge=1)
    lossless: str
    lossless_greedy: str = ""
    frontier: tuple[str, ...] = ()


def with_frontier(axes: Mapping[str, Any], choice: Any, base: Sequence[str]) -> dict[str, Any]:
    """The axes as YAML gives them, with a row at each temperature of the curve but that of `base`: the settings of
    `choice.lossless` that `choice.frontier` names. Raises ValueError for a setting that the row does not have."""
    given = choice if isinstance(choice, Mapping) else {}
    wanted = given.get("frontier") or ()
    if not wanted or not isinstance(wanted, Sequence) or isinstance(wanted, str):
        return dict(axes)
    asked = next((float(line.partition("=")[2]) for line in base if line.startswith(TEMPERATURE)), 0.0)
    extended = dict(axes)
    for name, axis in axes.items():
        rows = [_at(entry, t, wanted) for entry in axis if isinstance(entry, Mapping)
                and entry.get("label") == given.get("lossless") for t in TEMPERATURES if t != asked]
        extended[name] = [*axis, *rows] if rows else axis
    return extended


def _at(entry: Mapping[str, Any], temperature: float, wanted: Sequence[str]) -> dict[str, Any]:
    """The row of these settings at another temperature."""
    settings = {one["label"]: one for one in entry.get("variants", ()) if isinstance(one, Mapping) and "label" in one}
    if unknown := [label for label in wanted if label not in settings]:
        raise ValueError(f"choice.frontier: {', '.join(unknown)}: {entry['label']!r} has {', '.join(settings)}")
    return {**entry, "label": frontier_label(temperature), "frontier": True,
            "variants": [settings[label] for label in wanted],
            "overrides": [*entry.get("overrides", ()), f"{TEMPERATURE}{temperature:g}"]}


def frontier_label(temperature: float) -> str:
    return f"lossless, T = {temperature:g}"
