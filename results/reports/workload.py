"""A report on a user's own prompts: the settings to try, from conf/report/workload.yaml."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from results.reports.axes import Frozen
from results.reports.spec import FigureSpec, TableSpec

FIGURE = {"kind": "sweep", "x": "K", "x_label": "draft length K", "left": "answer_speedup_modelled",
          "panels": ["Method"]}
MEASURES = {
    "score": "the task's score on the same prompts; the loss is a fraction of plain decoding's score (20% correct with "
             "it and 16% with the method: a loss of 20%)",
    "agreement": "agreement with plain decoding's answers (1 − token edit distance over the longer length); the loss "
                 "is a fraction of the agreement of lossless decoding",
}


class Variants(Frozen):
    """A method, once or once per value of one of its options.

    label       its name.
    overrides   the overrides that choose it.
    option      the key that takes the values, if any.
    symbol      the option's name in labels; the last part of its key if empty.
    values      the values of the option.
    """

    label: str
    overrides: tuple[str, ...]
    option: str = ""
    symbol: str = ""
    values: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.option) != bool(self.values):
            raise ValueError("'option' names the key that takes the 'values': give both or neither")
        return self

    def entries(self) -> list[dict[str, Any]]:
        """Entries of an axis, one per value."""
        if not self.option:
            return [{"label": self.label, "overrides": self.overrides}]
        symbol = self.symbol or self.option.rpartition(".")[2]
        return [{"label": f"{self.label}, {symbol} = {value:g}",
                 "overrides": (*self.overrides, f"{self.option}={value:g}")} for value in self.values]


class Workload(Frozen):
    """The settings to try and the limits of the advice.

    quality_loss   allowed loss of quality, a fraction.
    min_prompts    fewest prompts that may show anything.
    lengths        draft lengths K.
    methods        the methods, each at every length.
    """

    name: str
    kind: Literal["workload"]
    title: str
    about: str = ""
    base: tuple[str, ...] = ()
    on_request: Literal[True] = True
    quality_loss: float = Field(ge=0, lt=1)
    min_prompts: int = Field(ge=2)
    lengths: tuple[PositiveInt, ...] = Field(min_length=1)
    methods: dict[str, Variants] = Field(min_length=1)

    def table(self, scored: bool = False) -> TableSpec:
        """All settings as a table; `scored`: the task scores answers."""
        score = ["accuracy"] if scored else []
        values = ["answer_speedup_modelled", "answer_speedup", "length_ratio", "tau", "quality_loss", "precision",
                  *score, "nll", "baseline_nll", "tokens_per_s"]
        return TableSpec.model_validate(self._common() | {
            "kind": "table", "rows": ["Method", "K"], "columns": ["Workload"], "values": values})

    def figure(self) -> FigureSpec:
        """Speedup against the draft length, a panel for each method."""
        axes = {name: axis for name, axis in self._axes().items() if name != "Workload"}
        about = "Bands are 95% intervals; the dotted line is plain decoding."
        return FigureSpec.model_validate(self._common() | {
            "name": f"{self.name}_lengths", "title": "Speedup of an answer against draft length", "kind": "figure",
            "about": about, "axes": axes, "figure": FIGURE})

    def _axes(self) -> dict[str, Any]:
        lengths = list(dict.fromkeys(self.lengths))
        return {
            "Workload": [{"label": "these prompts"}],
            "Method": [entry for method in self.methods.values() for entry in method.entries()],
            "K": {"override": "draft.length={}", "values": lengths, "label": "K = {}"},
        }

    def _common(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "about": self.about, "base": self.base, "axes": self._axes(),
                "on_request": True}
