"""Rows that choose among settings, so that relaxed and lossless rules are compared at their best alike."""

from __future__ import annotations

from pydantic import Field

from results.reports.axes import SETTING, Frozen


class Choice(Frozen):
    """What a row chooses, on which prompts, and which row it is compared with.

    The setting of a row is the one with the largest `speedup_modelled` on selection prompts, which are not reported.

    axes              axes that are chosen and not shown: draft length, tree, threshold.
    prompts           prompts that select, spread evenly over the cell's; the others are reported. None: each half
                      selects for the other, and all are reported.
    lossless          label of the row over lossless methods, "best lossless".
    lossless_greedy   that row at temperature 0, with which rows at temperature 0 are compared; "": none.
    """

    axes: tuple[str, ...] = Field(default=(SETTING,), min_length=1)
    prompts: int | None = Field(default=None, ge=1)
    lossless: str
    lossless_greedy: str = ""
