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

    The setting of a row is the one with the largest `speedup_modelled` on selection prompts, which are not reported.

    axes              axes that are chosen and not shown: draft length, tree, threshold.
    prompts           prompts that select, spread evenly over the cell's; the others are reported. None: each half
                      selects for the other, and all are reported.
    lossless          label of the row over lossless methods, "best lossless".
    frontier          every row is compared with the lossless ones at other temperatures, too: the settings of
                      `lossless` are decoded there, without a clock.
    lossless_greedy   that row at temperature 0, with which rows at temperature 0 are compared; "": none.
    """

    axes: tuple[str, ...] = Field(default=(SETTING,), min_length=1)
    prompts: int | None = Field(default=None, ge=1)
    lossless: str
    lossless_greedy: str = ""
    frontier: bool = False


def with_frontier(axes: Mapping[str, Any], choice: Any, base: Sequence[str]) -> dict[str, Any]:
    """The axes as YAML gives them, with a row of the settings of `choice.lossless` at each temperature of the curve but
    that of `base`, if the choice asks for them."""
    given = choice if isinstance(choice, Mapping) else {}
    if not given.get("frontier"):
        return dict(axes)
    asked = next((float(line.partition("=")[2]) for line in base if line.startswith(TEMPERATURE)), 0.0)
    extended = dict(axes)
    for name, axis in axes.items():
        lossless = [entry for entry in axis if isinstance(entry, Mapping) and entry.get("label") == given["lossless"]]
        extended[name] = [*axis, *({**entry, "label": frontier_label(t), "frontier": True, "overrides": [
            *entry.get("overrides", ()), f"{TEMPERATURE}{t:g}"]} for entry in lossless for t in TEMPERATURES
            if t != asked)] if lossless else axis
    return extended


def frontier_label(temperature: float) -> str:
    return f"lossless, T = {temperature:g}"
