"""Label, unit and definition of each metric, as tables, figures and pages show them."""

from __future__ import annotations

from results.metrics.control_metrics import CONTROLS, FRONTIER, OVER_BEST
from results.metrics.metric import Metric

_SPEED = (
    Metric("speedup", "Speedup", "×", 2, "higher",
           "Pooled tokens/s over that of autoregressive decoding of the same prompts in the same process, engine and "
           "numeric type, alternating prompt by prompt in the timed pass. Interval: Student's t on the logarithm, over "
           "the timed prompts."),
    Metric("speedup_modelled", "Modelled speedup", "×", 2, "higher",
           "τ over all prompts times the time of an autoregressive token, over the time of a cycle; both times are "
           "pooled over the timed prompts. Interval: delta method on the logarithm, with what a timed prompt adds to "
           "both; Welch and Satterthwaite's degrees of freedom."),
    Metric("token_ms", "Autoregressive token", "ms", 2, None,
           "Decode time of the baseline per token, pooled over the timed prompts."),
    Metric("timed_cycle_ms", "Timed cycle", "ms", 2, "lower",
           "Decode time per draft–verify cycle, pooled over the timed prompts."),
    Metric("repeatable", "Repeatable", "%", 0, None,
           "Timed prompts whose tokens equal those of the quality pass."),
    Metric("speedup_mean_of_ratios", "Speedup, mean of ratios", "×", 2, "higher",
           "Mean over prompts of the speedup of each prompt, as reported by several papers."),
    Metric("tokens_per_s", "Speed", "tok/s", 1, "higher",
           "Emitted tokens over decode wall time, which excludes prefill and tokenisation."),
    Metric("baseline_tokens_per_s", "Baseline speed", "tok/s", 1, None,
           "Emitted tokens over decode wall time of autoregressive decoding."),
    Metric("e2e_tokens_per_s", "End-to-end speed", "tok/s", 1, "higher",
           "Emitted tokens over prefill and decode wall time."),
    Metric("speedup_ideal", "Ideal speedup", "×", 2, "higher",
           "τ times the time of an autoregressive token, over the time of drafting and verifying: the speedup if all "
           "other work were free. Times are those of a profiling pass."),
    Metric("efficiency", "Efficiency", "%", 0, "higher",
           "Time of drafting and verifying over that of the whole cycle, in the profiling pass: the share of the ideal "
           "speedup that its cycles reach."),
    Metric("roofline", "Baseline's bandwidth", "%", 0, None,
           "Bytes that a token of autoregressive decoding must read, weights and cache, times its tokens/s, over the "
           "bandwidth of a plain copy on the same machine."),
    Metric("prefill_share", "Prefill", "%", 1, None, "Prefill over prefill and decode wall time."),
    Metric("draft_time_share", "Draft", "%", 1, None,
           "Drafting and pruning over prefill and decode wall time. Decode time is split in the proportions of a "
           "profiling pass, which synchronises with the device after every phase of a cycle. Interval: bootstrap over "
           "the prompts of the timed and of the profiling pass."),
    Metric("verify_share", "Verify", "%", 1, None,
           "The target's forward over the draft, as a share of prefill and decode wall time, split as for drafting."),
    Metric("accept_share", "Accept", "%", 1, None,
           "The rule's decision, the walk, the next token and the bookkeeping, as a share of prefill and decode wall "
           "time, split as for drafting."),
    Metric("cycle_ms", "Cycle", "ms", 2, "lower",
           "Time of a draft–verify cycle in the profiling pass: the median of each of its prompts, mean over these. "
           "Interval: bootstrap over its prompts."),
    Metric("forward_ms", "Total", "ms", 2, "lower",
           "Time per cycle of the target's forward and the decision on the draft, in the profiling pass."),
    Metric("head_ms", "Head", "ms", 2, "lower",
           "Time per cycle of all work after the target's last layer: products with the LM head, the rule's "
           "included, and the decision on the draft."),
    Metric("head_share", "Head / Total", "%", 1, "lower",
           "Head over Total: share of the target's forward and the decision spent after the last layer."),
)
_ACCEPTANCE = (
    Metric("tau", "τ", "", 2, "higher",
           "Tokens committed per draft–verify cycle, pooled, the correction or bonus token included; 1 ≤ τ ≤ K + 1."),
    Metric("timed_tau", "τ, timed prompts", "", 2, None, "τ of the timed prompts alone."),
    Metric("accept_len", "Accepted length", "", 2, "higher",
           "Accepted draft tokens per cycle, without the correction or bonus token."),
    Metric("draft_share", "From the draft", "%", 1, None, "Emitted tokens that came from the draft, over all emitted."),
    Metric("relaxed_share", "Relaxed", "%", 1, None,
           "Accepted draft tokens that the lossless test rejects with the same random numbers and that are not the "
           "target's argmax, over all emitted tokens."),
    Metric("greedier_share", "Greedier", "%", 1, None,
           "Accepted draft tokens that the lossless test rejects with the same random numbers although they are the "
           "target's argmax, over all emitted tokens: not relaxed, but greedier than the temperature implies."),
    Metric("pruned_share", "Pruned ρ", "%", 1, None, "Draft tokens dropped before verification, over all drafted."),
)
_QUALITY = (
    Metric("accuracy", "Accuracy", "%", 1, "higher",
           "The task's own score. Interval: Wilson for 0-or-1 scores, bootstrap over prompts for others."),
    Metric("baseline_accuracy", "Baseline accuracy", "%", 1, None, "The task's score of autoregressive decoding."),
    Metric("lossless_accuracy", "Lossless accuracy", "%", 1, None,
           "The task's score of the lossless rule on the same drafter, settings and prompts."),
    Metric("accuracy_change", "Δ accuracy", "pp", 1, "higher",
           "Accuracy minus that of autoregressive decoding, over the items that have both. Interval: Learned-Miller "
           "and Thomas' bound over paired items, which agreement of a few prompts does not narrow to nothing. Better: "
           "the whole interval is above 0; not worse: above minus the stated margin; worse: below 0, and it reaches "
           "that; undecided: else, with the number of prompts that would about decide.", True),
    Metric("judge_score", "Judge", "", 2, "higher",
           "Mean grade of an LLM judge over all turns, 1 to 10. Interval: bootstrap over prompts."),
    Metric("win_rate", "Win rate", "%", 1, "higher",
           "Answers that an LLM judge prefers to the reference answer, asked in both orders: a win in one order and a "
           "loss in the other is a tie, and ties count half. Interval: bootstrap over prompts."),
    Metric("recovery", "Recovery", "%", 1, "higher",
           "Accuracy over that of autoregressive decoding under the same decoding settings. Interval: bootstrap over "
           "paired items."),
    Metric("mcnemar_p", "McNemar p", "", 3, None,
           "p-value of the exact two-sided McNemar test: the probability that the prompts on which method and baseline "
           "disagree would split at least this unevenly if both were equally good."),
    Metric("precision", "Identical outputs", "%", 1, "higher",
           "Share of prompts whose output equals the baseline's token for token, under the same settings and seed."),
    Metric("edit_similarity", "Edit similarity", "%", 1, "higher",
           "1 − token edit distance to the baseline's output over the longer length, mean over prompts."),
    Metric("quality_loss", "Quality loss", "%", 1, "lower",
           "Share of the score of autoregressive decoding that is lost on a user's prompts; without scores, of the "
           "agreement of lossless methods with its answers. Interval: Learned-Miller and Thomas' bound over "
           "prompts."),
)
_ANSWER = (
    Metric("answer_speedup", "Answer speedup, timed prompts", "×", 2, "higher",
           "Seconds of autoregressive decoding of the timed prompts over own, prefill included, sum over sum. It "
           "checks the modelled one, and is marked where their intervals do not meet."),
    Metric("answer_speedup_modelled", "Answer speedup", "×", 2, "higher",
           "Seconds of autoregressive decoding over own, prefill included, over all prompts: what a user waits for. It "
           "decides. Passes and prefills are priced at their pooled times in the timed pass: a runaway among a dozen "
           "timed answers moves the direct number, not this one. Interval as for the modelled speedup. A gain is "
           "faster than the best lossless method and plain decoding, and not worse than it by more than the margin."),
    Metric("length_adjusted_speedup", "Length-adjusted speedup", "×", 2, "higher",
           "Modelled speedup over length ratio: speed per answer without the prefill, as arXiv 2607.08690 defines it, "
           "but with measured cycles. Interval as for the modelled speedup."),
    Metric("length_ratio", "Length ratio", "×", 2, None,
           "Emitted tokens over those of autoregressive decoding of the same prompts, sum over sum: above 1, faster "
           "tokens are spent on longer answers. Interval: paired bootstrap over prompts, as for all ratios here."),
    Metric("length_ratio_median", "Length ratio, median", "×", 2, None,
           "Median over prompts of the length ratio of each: a few runaway answers move the sum, not the median."),
    Metric("pass_ratio", "Passes saved", "×", 2, "higher",
           "Target passes of autoregressive decoding over own, sum over sum; a pass is a forward of the target after "
           "the prefill. What a rule saves per answer on any hardware; τ over it is about the length ratio."),
    Metric("pass_ratio_median", "Passes saved, median", "×", 2, "higher",
           "Median over prompts of the passes saved in each."),
    Metric("pass_ratio_strict", "Passes saved over lossless", "×", 2, "higher",
           "Target passes of the lossless rule on the same drafter over own, sum over sum."),
    Metric("nodes_per_cycle", "Nodes", "", 1, None, "Draft tokens that the target verifies in a cycle, on average."),
    Metric("forwards_per_cycle", "Draft forwards", "", 1, None,
           "Forwards of the drafter's own model in a cycle, on average."),
    Metric("cap_hit_share", "Cap hits", "%", 1, "lower",
           "Answers of which a turn ended at the length limit, over all. A limit hides length, and an unfinished "
           "answer counts as wrong. Interval: Wilson."),
    Metric("cap_hit_change", "Δ cap hits", "pp", 1, "lower",
           "Cap hits minus those of autoregressive decoding. Interval: Learned-Miller and Thomas' bound over paired "
           "prompts.", True),
    Metric("baseline_cap_hit_share", "Baseline cap hits", "%", 1, None,
           "Answers of autoregressive decoding of which a turn ended at the length limit. Above 10%, lengths and loops "
           "of the cell are marked as censored."),
    Metric("loop_share", "Loops", "%", 1, "lower",
           "Answers of which a turn ends in a loop: its last max(64, 4 d) tokens repeat with a period d of at most "
           "200. Interval: Wilson."),
    Metric("loop_change", "Δ loops", "pp", 1, "lower",
           "Loops minus those of autoregressive decoding. Interval as for Δ cap hits.", True),
    Metric("baseline_loop_share", "Baseline loops", "%", 1, None, "Loops of autoregressive decoding."),
    Metric("no_answer_share", "No answer", "%", 1, "lower",
           "Scored answers in which the scorer found no answer, over all scored. Interval: Wilson."),
    Metric("no_answer_change", "Δ no answer", "pp", 1, "lower",
           "No answer minus that of autoregressive decoding. Interval as for Δ cap hits.", True),
    Metric("baseline_no_answer_share", "Baseline without answer", "%", 1, None,
           "Answers of autoregressive decoding in which the scorer found no answer."),
    Metric("out_of_head_1k", "Out of head / 1k", "", 1, "lower",
           "Per 1,000 emitted tokens, the accepted draft tokens that the lossless test rejects with the same random "
           "numbers and whose probability is below a fifth of the largest (processed; at temperature 0, at temperature "
           "1). Rules that lengthen answers commit these. Interval: bootstrap over prompts."),
)
_TRACED = (
    Metric("coverage", "JS ≤ U_min", "%", 1, "higher",
           "Accepted draft tokens for which ARC-Decode's bound holds: the JS divergence between the target's next "
           "distributions after this token and after its own argmax is at most U_min. Interval: Wilson."),
    *(Metric(f"coverage_{name}", title, "%", 1, "higher", "JS ≤ the bound among the accepted draft tokens that are not "
             "the target's argmax: U_min, and each of its two bounds by itself.")
      for name, title in (("differing", "Where x ≠ t"), ("emb", "JS ≤ U_emb"), ("logit", "JS ≤ U_logit"))),
    *(Metric(f"majority_{i}", f"{i} agree", "%", 2, None,
             f"Tested contexts in which exactly {i} dropout heads agree on a token (DropMatch, Table 2).")
      for i in range(1, 6)),
    *(Metric(f"majority_p_{i}", f"p, {i} agree", "", 3, None,
             f"Mean probability of the token on which {i} dropout heads agree.") for i in range(1, 6)),
    *(Metric(f"js_{case}_{whose}", f"JS(c, {whose}), {case}", "", 4, None,
             f"Mean JS divergence, nats, of {who} to the heads' centroid where {where} (DropMatch, Table 3).")
      for case, where in (("dispersed", "the draft is no farther from it than the farthest head"),
                          ("concentrated", "the draft is farther than every head, but its token is the majority's"))
      for whose, who in (("draft", "the draft"), ("heads", "the dropout heads"))),
    *(Metric(f"js_{case}_share", f"{case}", "%", 1, None, f"Tested tokens that are {case}, see JS(c, ·), {case}.")
      for case in ("dispersed", "concentrated")),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in (
    *_SPEED, *_ACCEPTANCE, *CONTROLS, *_QUALITY, *_ANSWER, *OVER_BEST, *FRONTIER, *_TRACED)}

JUDGED = ("judge_score", "win_rate")
"""The metrics that an LLM judge gives."""
TIMED = frozenset({*(metric.name for metric in _SPEED), "over_best_answer", "frontier_speed", "frontier_answer"})
"""The metrics that need a timed pass."""
CLOCKED = TIMED | {metric.name for metric in _ANSWER if "speedup" in metric.name}
"""The metrics that the clock has a part in: those of answers ask for no timed pass, but use one."""


def metric(name: str) -> Metric:
    """Look up a metric by name. Raises ValueError for an unknown name."""
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}; one of: {', '.join(METRICS)}")
    return METRICS[name]
