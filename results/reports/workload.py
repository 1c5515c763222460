"""A user's own prompts as a report: the settings that are tried (conf/report/workload.yaml), what each of them loses,
and what comes of it."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from results.reports.axes import Frozen
from results.reports.spec import FigureSpec, TableSpec

FIGURE = {"kind": "sweep", "x": "K", "x_label": "draft length K", "left": "speedup", "panels": ["Method"]}
MEASURES = {
    "score": "the task's score on the same prompts, and what is lost a share of plain decoding's (20% right with it, "
             "16% with the method: 20% lost)",
    "agreement": "agreement with plain decoding's answers (1 − token edit distance over the longer length), and what "
                 "is lost a share of the agreement of lossless decoding",
}


class Variants(Frozen):
    """A method, once, or once for each of the `values` of one of its options."""

    label: str
    overrides: tuple[str, ...]
    option: str = ""
    symbol: str = ""
    values: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.option) != bool(self.values):
            raise ValueError("'option' names what takes the 'values': give both or neither")
        return self

    def entries(self) -> list[dict[str, Any]]:
        """Entries of an axis, one a value."""
        if not self.option:
            return [{"label": self.label, "overrides": self.overrides}]
        symbol = self.symbol or self.option.rpartition(".")[2]
        return [{"label": f"{self.label}, {symbol} = {value:g}",
                 "overrides": (*self.overrides, f"{self.option}={value:g}")} for value in self.values]


class Workload(Frozen):
    """The settings to try: `methods`, each at all draft `lengths`, and what decides between them: the `quality_loss`
    that is allowed (a fraction); fewer than `min_prompts` prompts show nothing."""

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
        values = ["speedup", "tau", "quality_loss", "precision", *score, "nll", "baseline_nll", "tokens_per_s"]
        return TableSpec.model_validate(self._common() | {
            "kind": "table", "rows": ["Method", "K"], "columns": ["Workload"], "values": values})

    def figure(self) -> FigureSpec:
        """Speedup against the draft length, a panel for each method."""
        axes = {name: axis for name, axis in self._axes().items() if name != "Workload"}
        about = "Bands are 95% intervals; the dotted line is plain decoding."
        return FigureSpec.model_validate(self._common() | {
            "name": f"{self.name}_lengths", "title": "Speedup against draft length", "kind": "figure", "about": about,
            "axes": axes, "figure": FIGURE})

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
