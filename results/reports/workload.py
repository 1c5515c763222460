"""A user's own prompts as a report: the settings that are tried (conf/report/workload.yaml), what each of them loses,
and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from results.metrics import intervals
from results.reports.advice import Estimate
from results.reports.axes import Frozen
from results.reports.spec import ReportSpec

Sample = Mapping[str, Any]
Pairs = dict[str, tuple[float, float]]
"""Item -> its quality with plain decoding and with the method, both in [0, 1]. Several samples of an item are one."""

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

    def table(self, scored: bool = False) -> ReportSpec:
        """All settings as a table; `scored`: the task scores answers."""
        score = ["accuracy"] if scored else []
        values = ["speedup", "tau", "quality_loss", "precision", *score, "nll", "baseline_nll", "tokens_per_s"]
        return self._spec(kind="table", rows=["Method", "K"], columns=["Workload"], values=values)

    def figure(self) -> ReportSpec:
        """Speedup against the draft length, a panel for each method."""
        axes = {name: axis for name, axis in self._axes().items() if name != "Workload"}
        about = "Bands are 95% intervals; the dotted line is plain decoding."
        return self._spec(name=f"{self.name}_lengths", title="Speedup against the draft length", kind="figure",
                          about=about, axes=axes, figure=FIGURE)

    def _axes(self) -> dict[str, Any]:
        lengths = list(dict.fromkeys(self.lengths))
        return {
            "Workload": [{"label": "these prompts"}],
            "Method": [entry for method in self.methods.values() for entry in method.entries()],
            "K": {"override": "draft.length={}", "values": lengths, "label": "K = {}"},
        }

    def _spec(self, **given: Any) -> ReportSpec:
        common = {"name": self.name, "title": self.title, "about": self.about, "base": self.base, "axes": self._axes()}
        return ReportSpec.model_validate(common | {"on_request": True} | given)


def spec_of(section: Mapping[str, Any]) -> type[ReportSpec] | type[Workload]:
    """The model that a report's YAML is to be read with."""
    return Workload if section.get("kind") == "workload" else ReportSpec


def right_of(cells: Sequence[Sequence[Sample]]) -> float | None:
    """How many items plain decoding gets right (the sum of their scores), where most of them were measured; None where
    nothing has a score."""
    known = [pairs for samples in cells if (pairs := score_pairs(samples))]
    return max((sum(plain for plain, _ in pairs.values()) for pairs in known), default=None)


def least_right(limit: float) -> int:
    """With fewer right, one right answer that is lost is already more than the limit."""
    return math.ceil(round(1 / limit, 9)) if limit else 1


def measure_of(right: float | None, limit: float) -> Literal["score", "agreement"]:
    """What quality is here: the task's score, where plain decoding gets enough right for the limit to mean anything;
    else agreement with plain decoding's own answers."""
    return "agreement" if right is None or right < least_right(limit) else "score"


def score_pairs(samples: Sequence[Sample]) -> Pairs:
    """Of the items that both have a score."""
    return _items((sample, sample["baseline"]["score"], sample["score"]) for sample in _good(samples)
                  if None not in (sample["score"], sample["baseline"]["score"]))


def agreement(samples: Sequence[Sample]) -> dict[str, float]:
    """Sample id -> similarity to plain decoding's answer."""
    return {sample["id"]: intervals.edit_similarity(sample["output_ids"], sample["baseline"]["output_ids"])
            for sample in _good(samples)}


def agreement_pairs(samples: Sequence[Sample], exact: Sequence[Sequence[Sample]], greedy: bool) -> Pairs | None:
    """How far the answers of lossless methods agree with plain decoding's, and how far these do.

    At temperature 0 (`greedy`) a lossless method agrees fully. Above, two samples of one distribution differ, and how
    far they agree is measured: the mean over the lossless methods `exact` at the same prompt. None without one."""
    if not greedy and not exact:
        return None
    own, found = agreement(samples), [agreement(cell) for cell in exact]
    ceiling = {name: [1.0] if greedy else [cell[name] for cell in found if name in cell] for name in own}
    return _items((sample, float(np.mean(ceiling[sample["id"]])), own[sample["id"]]) for sample in _good(samples)
                  if ceiling[sample["id"]])


def loss_of(pairs: Pairs | None, tried: int, best: tuple[float, float] = (0.0, 1.0)) -> Estimate:
    """The share of the quality of plain decoding that is lost, as one of `tried` settings. `best`: the pair in which
    the method does best."""
    if not pairs or not any(plain for plain, _ in pairs.values()):
        return Estimate()
    reference, own = zip(*(pairs[name] for name in sorted(pairs)), strict=True)
    among, alone = intervals.loss_intervals(reference, own, [intervals.together(tried), intervals.LEVEL], best)
    return Estimate(1 - sum(own) / sum(reference), among, alone)


def speed_of(samples: Sequence[Sample], pooled: float | None, tried: int) -> tuple[Estimate, int]:
    """The `pooled` speedup as one of `tried` settings, and over how many items: an item's samples depend on one
    another, so their tokens and seconds are added up."""
    items: dict[str, np.ndarray] = {}
    for sample in _good(samples):
        arms = [(len(run["output_ids"]), run["decode_s"]) for run in (sample, sample["baseline"])]
        items[_item(sample)] = items.get(_item(sample), 0) + np.ravel(arms).astype(float)
    # An item answered by the token of the prefill alone took no decode time.
    timed = [arms for _, arms in sorted(items.items()) if (arms > 0).all()]
    if len(timed) < 2:
        return Estimate(pooled), len(items)
    arms = np.array(timed).T
    among = intervals.speedup_t_interval(*arms, intervals.together(tried))
    return Estimate(pooled, among, intervals.speedup_interval(*arms)), len(items)


def _items(found: Iterable[tuple[Sample, float, float]]) -> Pairs:
    """The means of an item's samples."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for sample, plain, own in found:
        pairs.setdefault(_item(sample), []).append((plain, own))
    return {name: tuple(np.mean(values, axis=0).tolist()) for name, values in pairs.items()}


def _item(sample: Sample) -> str:
    return sample.get("group") or sample["id"]


def _good(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if "error" not in sample and sample["baseline"] is not None]
