"""Label, unit and definition of a metric, and how its interval is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from results.store.summary import Interval, Summary


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a summary.

    name        the field of `Summary`
    label       column or axis title
    unit        unit in print; "%" for a value stored as a fraction, "pp" (percentage points) for a difference of such
    digits      decimals in print
    better      the better direction, or None
    definition  what it measures, in one or two sentences
    signed      print a plus sign
    """

    name: str
    label: str
    unit: Literal["", "×", "%", "pp", "tok/s", "ms"]
    digits: int
    better: Literal["higher", "lower"] | None
    definition: str
    signed: bool = False

    def interval_kind(self, proportion: bool) -> str:
        """How the interval is made, in a few words; `proportion`: whether the task's scores are 0 or 1."""
        if self.name in _SCORES and not proportion:
            return _BOOTSTRAP
        return next((kind for kind, names in _INTERVALS.items() if self.name in names), _BOOTSTRAP)

    @property
    def axis(self) -> str:
        """Label of a figure's axis, with the unit."""
        unit = "tokens a cycle" if self.name in _LENGTHS else self.unit
        return f"{self.label} ({unit})" if unit else self.label

    def shown(self, value: float) -> float:
        """Convert a stored value to the printed unit."""
        return 100 * value if self.unit in ("%", "pp") else value

    def value(self, summary: Summary) -> float | None:
        """This metric of a cell as stored; None if it was not measured."""
        stored: float | None = getattr(summary, self.name)
        return stored

    def interval(self, summary: Summary) -> Interval | None:
        """The 95% interval of this metric as stored, or None."""
        stored: Interval | None = getattr(summary, f"{self.name}_ci95", None)
        return stored


_BOOTSTRAP, _SCORES = "bootstrap over prompts", ("accuracy", "baseline_accuracy")
_INTERVALS = {
    "Wilson": (*_SCORES, "precision", "cap_hit_share", "loop_share", "no_answer_share",
               "coverage", "coverage_differing", "coverage_emb", "coverage_logit"),
    "Student's t on the log ratio": ("speedup", "speedup_mean_of_ratios", "tokens_per_s", "baseline_tokens_per_s",
                                     "e2e_tokens_per_s", "answer_speedup"),
    "delta method on the log ratio": ("speedup_modelled", "answer_speedup_modelled", "length_adjusted_speedup",
                                      "over_best_answer"),
    "Learned-Miller and Thomas": ("accuracy_change", "cap_hit_change", "loop_change", "no_answer_change",
                                  "quality_loss", "over_best_accuracy"),
}
"""How intervals are made where it is not a bootstrap over prompts."""
_LENGTHS = ("tau", "accept_len")
"""Metrics whose unit only axes name: tables print them without."""
