"""What each number is called, how it is printed and what it means: read by tables, figures and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of a summary. `unit` is "×", "%" (of a stored fraction), "tok/s", "ms" or none; `better` is its
    good end."""

    name: str
    label: str
    unit: Literal["", "×", "%", "tok/s", "ms"]
    digits: int
    better: Literal["higher", "lower"] | None
    definition: str

    @property
    def axis(self) -> str:
        """Label of a figure's axis, with the unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def sign(self) -> str:
        """What is printed behind a number in a table; other units stand in the definition."""
        return self.unit if self.unit in ("×", "%") else ""

    def shown(self, value: float) -> float:
        """A stored value in the unit it is printed in."""
        return 100 * value if self.unit == "%" else value

    def interval(self, summary: Mapping[str, Any]) -> tuple[float, float] | None:
        """The 95% interval that the summary holds for this metric, None where it has none."""
        found = summary.get(f"{self.name}_ci95")
        return None if found is None else (found[0], found[1])


_ALL = (
    Metric("speedup", "Speedup", "×", 2, "higher",
           "Pooled tokens/s over that of autoregressive decoding of the same prompts in the same process, engine and "
           "numeric type, the two taking turns. Interval: paired bootstrap over prompts."),
    Metric("speedup_mean_of_ratios", "Speedup, mean of ratios", "×", 2, "higher",
           "The mean over prompts of each prompt's own speedup, as several papers average."),
    Metric("tau", "τ", "", 2, "higher",
           "Tokens committed per draft–verify cycle, pooled, the correction or bonus token included; 1 ≤ τ ≤ K + 1."),
    Metric("accept_len", "Accepted length", "", 2, "higher", "Accepted draft tokens per cycle, without the bonus."),
    Metric("draft_share", "From the draft", "%", 1, None, "Emitted tokens that came from the draft, over all emitted."),
    Metric("relaxed_share", "Relaxed", "%", 1, None,
           "Emitted tokens that were accepted although the strict rule, with the same random numbers, rejects them."),
    Metric("pruned_share", "Pruned ρ", "%", 1, None, "Drafted tokens dropped before verification, over all drafted."),
    Metric("tokens_per_s", "Speed", "tok/s", 1, "higher",
           "Emitted tokens over decode wall time; prefill and tokenisation are outside."),
    Metric("baseline_tokens_per_s", "Baseline speed", "tok/s", 1, None, "The same for autoregressive decoding."),
    Metric("e2e_tokens_per_s", "End-to-end speed", "tok/s", 1, "higher",
           "Emitted tokens over prefill and decode wall time."),
    Metric("accuracy", "Accuracy", "%", 1, "higher",
           "The task's own score. Interval: Wilson for right-or-wrong scores, bootstrap over prompts for others."),
    Metric("baseline_accuracy", "Baseline accuracy", "%", 1, None, "The score of autoregressive decoding."),
    Metric("recovery", "Recovery", "%", 1, "higher",
           "Accuracy over that of autoregressive decoding under the same decoding settings."),
    Metric("mcnemar_p", "McNemar p", "", 3, None,
           "Exact two-sided McNemar test: the chance of so uneven a split of the prompts on which method and baseline "
           "disagree if both were equally good."),
    Metric("precision", "Identical outputs", "%", 1, "higher",
           "Prompts whose output equals the baseline's, token by token, under the same settings and seed."),
    Metric("edit_similarity", "Edit similarity", "%", 1, "higher",
           "1 − token edit distance to the baseline's output over the longer length, mean over prompts."),
    Metric("quality_loss", "Quality loss", "%", 1, "lower",
           "What a user's prompts lose against autoregressive decoding: its score less the method's, or, without "
           "scores, how much less the answers agree with its own than a lossless method's do. Interval: bootstrap over "
           "prompts."),
    Metric("prefill_share", "Prefill", "%", 1, None,
           "Share of a pass of its own over a few prompts, which waits for the device at every phase: the prompt's "
           "forward."),
    Metric("draft_time_share", "Draft", "%", 1, None, "Share of the same pass: drafting, pruning included."),
    Metric("verify_share", "Verify", "%", 1, None, "Share of the same pass: the target's forward over the draft."),
    Metric("accept_share", "Accept", "%", 1, None,
           "Share of the same pass: the rule's decision, the walk, the token after it, and the bookkeeping."),
    Metric("cycle_ms", "Cycle", "ms", 2, "lower", "One draft–verify cycle of the same pass, drafting included."),
    Metric("forward_ms", "Total", "ms", 2, "lower",
           "Of a cycle of the same pass, what is not drafting or bookkeeping: the target's forward, the decision and "
           "the walk."),
    Metric("head_ms", "Head", "ms", 2, "lower",
           "Of that total, what comes after the transformer's last layer: the LM head's products, the rule's own "
           "included, and its decision."),
    Metric("head_share", "Head / Total", "%", 1, "lower", "The one over the other."),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}


def metric(name: str) -> Metric:
    """Raises ValueError for a name that is no metric."""
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}; one of: {', '.join(METRICS)}")
    return METRICS[name]
