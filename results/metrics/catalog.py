"""What each number is called, how it is printed and what it means: read by tables, figures and the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from results.store.summary import Interval, Summary


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
    signed: bool = False

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

    def value(self, summary: Summary) -> float | None:
        """This metric of a cell, in the unit it is stored in; None where it was not measured."""
        stored: float | None = getattr(summary, self.name)
        return stored

    def interval(self, summary: Summary) -> Interval | None:
        """The 95% interval of this metric, in the unit it is stored in; None where it has none."""
        stored: Interval | None = getattr(summary, f"{self.name}_ci95", None)
        return stored


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
           "Accepted draft tokens that the lossless test rejects with the same random numbers and that are not the "
           "target's argmax, over all emitted tokens."),
    Metric("greedier_share", "Greedier", "%", 1, None,
           "Accepted draft tokens that the lossless test rejects with the same random numbers although they are the "
           "target's argmax, over all emitted tokens: no relaxation, but greedier than the temperature asks for."),
    Metric("pruned_share", "Pruned ρ", "%", 1, None, "Drafted tokens dropped before verification, over all drafted."),
    Metric("tokens_per_s", "Speed", "tok/s", 1, "higher",
           "Emitted tokens over decode wall time; prefill and tokenisation are outside."),
    Metric("baseline_tokens_per_s", "Baseline speed", "tok/s", 1, None, "The same for autoregressive decoding."),
    Metric("e2e_tokens_per_s", "End-to-end speed", "tok/s", 1, "higher",
           "Emitted tokens over prefill and decode wall time."),
    Metric("speedup_ideal", "Ideal speedup", "×", 2, "higher",
           "τ times the time of an autoregressive token over the time of drafting and verifying: what the accepted "
           "length would give if nothing else cost time. Medians of a profiling pass of its own."),
    Metric("efficiency", "Efficiency", "%", 0, "higher", "Speedup over ideal speedup."),
    Metric("nll", "NLL", "", 3, None,
           "Mean −log p(token) of the emitted tokens under the raw target, nats. Lower than that of plain sampling at "
           "the same temperature: the output is greedier than asked for."),
    Metric("baseline_nll", "Baseline NLL", "", 3, None, "The same for autoregressive decoding."),
    Metric("distinct_2", "Distinct-2", "%", 1, None,
           "Distinct pairs of neighbouring tokens over all of them in a prompt's answers, all repeats together, mean "
           "over prompts. Only comparable at equal numbers of repeats."),
    Metric("self_agreement", "Self-agreement", "%", 1, None,
           "Edit similarity of two answers to one prompt with different random numbers, mean over pairs and prompts."),
    Metric("greedy_tau", "τ at T = 0", "", 2, None, "τ of the same method on the same prompts at temperature 0."),
    Metric("other_q_tau", "τ, other q_mode", "", 2, None, "τ of the same point with the other q_mode."),
    Metric("tau_gain", "Δτ", "", 2, None,
           "τ less that of the lossless rule on the same drafter, settings and prompts; the next three are its parts "
           "and add up to it. Intervals: paired bootstrap over prompts.", True),
    Metric("tau_gain_relaxed", "relaxation", "", 2, None,
           "The rest of Δτ: what a lossless decoder that is merely as much greedier would not gain.", True),
    Metric("tau_gain_greedier", "greedier", "", 2, None,
           "What the lossless rule gains at temperature 0, times how far the rule's NLL (with q_mode exact) has gone "
           "from the lossless rule's to that at temperature 0, between none and all of the way.", True),
    Metric("tau_gain_q", "q_mode", "", 2, None, "τ less that of the same rule with q_mode exact.", True),
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
           "The share of autoregressive decoding's score that a user's prompts lose, or, without scores, of the "
           "agreement that a lossless method's answers have with its own. Interval: Learned-Miller and Thomas' bound "
           "over prompts."),
    Metric("coverage", "JS ≤ U_min", "%", 1, "higher",
           "Accepted draft tokens behind which the target's next distribution is no farther (JS) from that behind its "
           "own choice than ARC-Decode's bound says. Interval: Wilson."),
    Metric("coverage_differing", "Where x ≠ t", "%", 1, "higher",
           "The same of those accepted tokens that are not the target's own choice; the others cost nothing."),
    Metric("prefill_share", "Prefill", "%", 1, None, "The prompts' forward, over prefill and decode wall time."),
    Metric("draft_time_share", "Draft", "%", 1, None,
           "Drafting, pruning included, over prefill and decode wall time: decoding is split as a profiling pass of "
           "its own, which waits for the device at every phase, found a cycle's parts."),
    Metric("verify_share", "Verify", "%", 1, None, "The target's forward over the draft; as above."),
    Metric("accept_share", "Accept", "%", 1, None,
           "The rule's decision, the walk, the token after it, and the bookkeeping; as above."),
    Metric("cycle_ms", "Cycle", "ms", 2, "lower", "A draft–verify cycle: medians of the profiling pass."),
    Metric("forward_ms", "Total", "ms", 2, "lower", "Of a cycle, the target's forward and the decision on the draft."),
    Metric("head_ms", "Head", "ms", 2, "lower",
           "Of that total, what comes after the last layer: the LM head's products, the rule's own included, and its "
           "decision."),
    Metric("head_share", "Head / Total", "%", 1, "lower", "The one over the other."),
)
_TRACED = (
    *(Metric(f"majority_{i}", f"{i} agree", "%", 2, None,
             f"Tested contexts in which {i} dropout heads agree on a token and no more do (DropMatch, Table 2).")
      for i in range(1, 6)),
    *(Metric(f"majority_p_{i}", f"p, {i} agree", "", 3, None,
             f"Mean probability of the token that {i} dropout heads agree on.") for i in range(1, 6)),
    *(Metric(f"js_{case}_{whose}", f"JS(c, {whose}), {case}", "", 4, None,
             f"Mean JS divergence, nats, of {who} to the heads' centroid where {where} (DropMatch, Table 3).")
      for case, where in (("dispersed", "the draft is no farther from it than the farthest head"),
                          ("concentrated", "it is farther, but the token is the majority's"))
      for whose, who in (("draft", "the draft"), ("heads", "the dropout heads"))),
    *(Metric(f"js_{case}_share", f"{case}", "%", 1, None, f"Tested tokens that are {case}, see JS(c, ·), {case}.")
      for case in ("dispersed", "concentrated")),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in (*_ALL, *_TRACED)}


def metric(name: str) -> Metric:
    """Raises ValueError for a name that is no metric."""
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}; one of: {', '.join(METRICS)}")
    return METRICS[name]
