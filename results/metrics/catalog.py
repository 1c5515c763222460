"""The metrics, each declared once: tables, figures, pages and verdicts take all they know of one
from here."""

from __future__ import annotations

from functools import partial

import numpy as np

from results.metrics import adds
from results.metrics.answer_speed import COMMON, adjusted_speedup, answer_speedup, token_speedup
from results.metrics.delta import double_ratio
from results.metrics.distortion import DISTORTION
from results.metrics.metric import (
    ALONE,
    DELTA,
    DIVERGENCE,
    LEARNED_MILLER,
    LOG_SESSIONS,
    LOG_T,
    RECOVERED,
    SKEWED,
    WILSON,
    Floats,
    Metric,
    baseline_ratio,
    change,
)

POSITIONS = 8
"""Draft positions whose acceptance rate is a metric of its own."""
TIMED_SUM = COMMON.index("timed")


def own_share(sums: Floats) -> Floats:
    """The share of answers with an event, of the sums (own, the baseline's, answers)."""
    return np.asarray(sums[..., 0] / sums[..., 2])


def other_share(sums: Floats) -> Floats:
    """The same of the baseline's."""
    return np.asarray(sums[..., 1] / sums[..., 2])


_SPEED = (
    Metric(
        "speedup",
        "Speedup",
        "×",
        2,
        "higher",
        "Pooled tokens/s, the prompt's forward included, over that of autoregressive decoding of "
        "the same prompts in the same process, engine and numeric type, alternating prompt by "
        "prompt in the timed pass. Interval: Student's t on the logarithm, over the timed "
        "prompts, with what differs between measuring sessions, as for all speeds over "
        "autoregressive decoding.",
        adds=adds.clock,
        statistic=double_ratio,
        estimator=LOG_T,
        relative="ratio",
        compared=True,
        checks="speedup_modelled",
        clock="needed",
    ),
    Metric(
        "speedup_of_means",
        "Speedup, mean of questions",
        "×",
        2,
        "higher",
        "Mean over the timed prompts of each one's tokens/s, the prompt's forward included, over "
        "the same mean of autoregressive decoding: what the code of EAGLE and MARS computes.",
        adds=adds.rates,
        estimator=LOG_T,
        relative="ratio",
        compared=True,
        clock="needed",
    ),
    Metric(
        "decode_speedup",
        "Decode speedup",
        "×",
        2,
        "higher",
        "As the speedup, without the prompt's forward on both sides.",
        adds=adds.decode_clock,
        statistic=double_ratio,
        estimator=LOG_T,
        relative="ratio",
        compared=True,
        clock="needed",
    ),
    Metric(
        "speedup_modelled",
        "Speedup, modelled",
        "×",
        2,
        "higher",
        "Time per token of autoregressive decoding over own, the prompt's forward included, over "
        "all prompts: their passes and prefills at the pooled times of the timed prompts. "
        "Interval: delta method on the logarithm, with what a timed prompt adds to both; Welch "
        "and Satterthwaite's degrees of freedom.",
        adds=adds.priced,
        statistic=token_speedup,
        estimator=DELTA,
        relative="ratio",
        compared=True,
        timed=TIMED_SUM,
        clock="needed",
    ),
    Metric(
        "repeatable",
        "Repeatable",
        "%",
        0,
        None,
        "Timed prompts whose tokens equal those of the quality pass.",
        adds=adds.repeated,
        estimator=ALONE,
        clock="needed",
    ),
    Metric(
        "tokens_per_s",
        "Speed",
        "tok/s",
        1,
        "higher",
        "Emitted tokens over wall time, the prompt's forward included, tokenisation not.",
        adds=adds.clock,
        estimator=LOG_T,
        compared=True,
        clock="needed",
    ),
    Metric(
        "baseline_tokens_per_s",
        "Baseline speed",
        "tok/s",
        1,
        None,
        "Emitted tokens over wall time of autoregressive decoding, as for the speed.",
        adds=adds.clock,
        statistic=baseline_ratio,
        estimator=LOG_T,
        clock="needed",
    ),
    Metric(
        "prefill_share",
        "Prefill",
        "%",
        1,
        None,
        "Prefill over prefill and decode wall time.",
        clock="needed",
    ),
    Metric(
        "draft_time_share",
        "Draft",
        "%",
        1,
        None,
        "Drafting and pruning over prefill and decode wall time. Decode time is split in the "
        "proportions of a profiling pass, which synchronises with the device after every phase "
        "of a cycle. Interval: bootstrap over the prompts of the timed and of the profiling pass.",
        clock="needed",
    ),
    Metric(
        "verify_share",
        "Verify",
        "%",
        1,
        None,
        "The target's forward over the draft, as a share of prefill and decode wall time, split "
        "as for drafting.",
        clock="needed",
    ),
    Metric(
        "accept_share",
        "Accept",
        "%",
        1,
        None,
        "The rule's decision, the walk, the next token and the bookkeeping, as a share of "
        "prefill and decode wall time, split as for drafting.",
        clock="needed",
    ),
    Metric(
        "cycle_ms",
        "Cycle",
        "ms",
        2,
        "lower",
        "Time of a draft–verify cycle in the profiling pass: the median of each of its prompts, "
        "mean over these. Interval: bootstrap over its prompts.",
        clock="needed",
    ),
    Metric(
        "forward_ms",
        "Total",
        "ms",
        2,
        "lower",
        "Time per cycle of the target's forward and the decision on the draft, in the profiling "
        "pass.",
        clock="needed",
    ),
    Metric(
        "head_ms",
        "Head",
        "ms",
        2,
        "lower",
        "Time per cycle of all work after the target's last layer: products with the LM head, "
        "the rule's included, and the decision on the draft.",
        clock="needed",
    ),
    Metric(
        "head_share",
        "Head / Total",
        "%",
        1,
        "lower",
        "Head over Total: share of the target's forward and the decision spent after the last "
        "layer.",
        clock="needed",
    ),
)
_ACCEPTANCE = (
    Metric(
        "tau",
        "τ",
        "",
        2,
        "higher",
        "Tokens committed per draft–verify cycle, pooled, the correction or bonus token "
        "included; 1 ≤ τ ≤ K + 1.",
        adds=lambda pair: (sum(pair.sample.committed), len(pair.sample.committed)),
        compared=True,
        axis_unit="tokens a cycle",
    ),
    Metric(
        "timed_tau",
        "τ, timed prompts",
        "",
        2,
        None,
        "τ of the timed prompts alone.",
        adds=adds.timed_cycles,
        estimator=ALONE,
    ),
    Metric(
        "accept_len",
        "Accepted length",
        "",
        2,
        "higher",
        "Accepted draft tokens per cycle, without the correction or bonus token.",
        adds=lambda pair: (sum(pair.sample.accepted), len(pair.sample.accepted)),
        compared=True,
        axis_unit="tokens a cycle",
    ),
    Metric(
        "acceptance_rate",
        "Acceptance rate",
        "%",
        1,
        "higher",
        "Accepted draft tokens over those that the target verified: of a tree, all its nodes.",
        adds=adds.drafted,
        every=True,
        compared=True,
    ),
    *(
        Metric(
            f"acceptance_{i}",
            f"Accepted at {i}",
            "%",
            1,
            "higher",
            f"Acceptance rate by position: cycles that accepted at least {i} draft tokens, over "
            "those whose draft was so deep.",
            adds=partial(adds.at_position, position=i),
            every=True,
        )
        for i in range(1, POSITIONS + 1)
    ),
    Metric(
        "draft_share",
        "From the draft",
        "%",
        1,
        None,
        "Emitted tokens that came from the draft, over all emitted.",
        adds=lambda pair: (adds.from_draft(pair.sample), len(pair.sample.output_ids)),
    ),
    Metric(
        "relaxed_share",
        "Relaxed",
        "%",
        1,
        None,
        "Accepted draft tokens that the lossless test rejects with the same random numbers and "
        "that are not the target's argmax, over all emitted tokens.",
        adds=lambda pair: (pair.sample.relaxed, len(pair.sample.output_ids)),
    ),
    Metric(
        "greedier_share",
        "Greedier",
        "%",
        1,
        None,
        "Accepted draft tokens that the lossless test rejects with the same random numbers "
        "although they are the target's argmax, over all emitted tokens: not relaxed, but "
        "greedier than the temperature implies.",
        adds=lambda pair: (pair.sample.greedier, len(pair.sample.output_ids)),
    ),
    Metric(
        "pruned_share",
        "Pruned ρ",
        "%",
        1,
        None,
        "Draft tokens dropped before verification, over all drafted.",
        adds=lambda pair: (pair.sample.pruned, pair.sample.drafted),
    ),
)
_CONTROLS = (
    Metric(
        "nll",
        "NLL",
        "",
        3,
        None,
        "Mean −log p(token) of the emitted tokens under the raw target, nats. A value below that "
        "of plain sampling at the same temperature means that the output is greedier than the "
        "temperature implies.",
        adds=lambda pair: adds.nats(pair.sample),
        estimator=SKEWED,
        every=True,
    ),
    Metric(
        "baseline_nll",
        "Baseline NLL",
        "",
        3,
        None,
        "Mean −log p(token) of the tokens of autoregressive decoding under the raw target, nats.",
        adds=lambda pair: adds.nats(pair.baseline),
        estimator=SKEWED,
        every=True,
    ),
    Metric(
        "distinct_2",
        "Distinct-2",
        "%",
        1,
        None,
        "Distinct pairs of neighbouring tokens over all such pairs in a prompt's answers, all "
        "repeats pooled; mean over prompts. Comparable only at equal numbers of repeats.",
    ),
    Metric(
        "self_agreement",
        "Self-agreement",
        "%",
        1,
        None,
        "Edit similarity of two answers to one prompt with different random numbers, mean over "
        "pairs and prompts.",
    ),
    Metric(
        "tau_gain",
        "Δτ",
        "",
        2,
        None,
        "τ minus that of the lossless rule on the same drafter, settings and prompts. Interval: "
        "bootstrap over prompts.",
        signed=True,
    ),
)
_QUALITY = (
    Metric(
        "accuracy",
        "Accuracy",
        "%",
        1,
        "higher",
        "The task's own score. Interval: Wilson for 0-or-1 scores, Student's t over prompts for "
        "others.",
        adds=adds.score,
        is_score=True,
        compared=True,
    ),
    Metric(
        "baseline_accuracy",
        "Baseline accuracy",
        "%",
        1,
        None,
        "The task's score of autoregressive decoding.",
        adds=lambda pair: None if pair.baseline.score is None else (pair.baseline.score, 1.0),
        is_score=True,
    ),
    Metric(
        "lossless_accuracy",
        "Lossless accuracy",
        "%",
        1,
        None,
        "The task's score of the lossless rule on the same drafter, settings and prompts.",
    ),
    Metric(
        "accuracy_change",
        "Δ accuracy",
        "pp",
        1,
        "higher",
        "Accuracy minus that of autoregressive decoding, over the items that have both. "
        "Interval: Learned-Miller and Thomas' bound over paired items, which agreement of a few "
        "prompts does not narrow to nothing.",
        signed=True,
        adds=adds.scores,
        statistic=change,
        estimator=LEARNED_MILLER,
        relative="change",
        compared=True,
    ),
    Metric(
        "judge_score",
        "Judge",
        "",
        2,
        "higher",
        "Mean grade of an LLM judge over all turns, 1 to 10. Interval: bootstrap over prompts.",
        judged=True,
    ),
    Metric(
        "win_rate",
        "Win rate",
        "%",
        1,
        "higher",
        "Answers that an LLM judge prefers to the reference answer, asked in both orders: a win "
        "in one order and a loss in the other is a tie, and ties count half. Interval: bootstrap "
        "over prompts.",
        judged=True,
    ),
    Metric(
        "recovery",
        "Recovery",
        "%",
        1,
        "higher",
        "Accuracy over that of autoregressive decoding under the same decoding settings. "
        "Interval: bootstrap over paired items.",
        adds=adds.scores,
        estimator=RECOVERED,
        relative="ratio",
    ),
    Metric(
        "precision",
        "Identical outputs",
        "%",
        1,
        "higher",
        "Share of prompts whose output equals the baseline's token for token, under the same "
        "settings and seed.",
        adds=lambda pair: (pair.sample.output_ids == pair.baseline.output_ids, 1.0),
        estimator=WILSON,
        compared=True,
    ),
)
_ANSWER = (
    Metric(
        "answer_speedup",
        "Answer speedup, timed prompts",
        "×",
        2,
        "higher",
        "Seconds of autoregressive decoding of the timed prompts over own, prefill included, sum "
        "over sum. It checks the modelled one, and is marked where their intervals do not meet.",
        adds=adds.answer_seconds,
        estimator=LOG_T,
        relative="ratio",
        compared=True,
        clock="used",
        censored=True,
        checks="answer_speedup_modelled",
    ),
    Metric(
        "answer_speedup_modelled",
        "Answer speedup, modelled",
        "×",
        2,
        "higher",
        "Seconds of autoregressive decoding over own, prefill included, over all prompts: what a "
        "user waits for. Passes and prefills are priced at their pooled times in the "
        "timed pass: a runaway among a dozen timed answers moves the direct number, not this "
        "one. Interval as for the modelled speedup.",
        adds=adds.priced,
        statistic=answer_speedup,
        estimator=DELTA,
        relative="ratio",
        compared=True,
        timed=TIMED_SUM,
        clock="used",
        censored=True,
    ),
    Metric(
        "length_adjusted_speedup",
        "Length-adjusted speedup",
        "×",
        2,
        "higher",
        "Decode speedup, modelled, over length ratio: speed per answer without the prefill, as "
        "arXiv 2607.08690 defines it, but with measured cycles. Interval as for the modelled "
        "speedup.",
        adds=adds.priced,
        statistic=adjusted_speedup,
        estimator=DELTA,
        relative="ratio",
        compared=True,
        timed=TIMED_SUM,
        clock="used",
        censored=True,
    ),
    Metric(
        "length_ratio",
        "Length ratio",
        "×",
        2,
        None,
        "Emitted tokens over those of autoregressive decoding of the same prompts, sum over sum: "
        "above 1, faster tokens are spent on longer answers. Interval: Student's t on the "
        "logarithm, as for all ratios here.",
        adds=adds.lengths,
        relative="ratio",
        censored=True,
    ),
    Metric(
        "pass_ratio",
        "Passes saved",
        "×",
        2,
        "higher",
        "Target passes of autoregressive decoding over own, sum over sum; a pass is a forward of "
        "the target after the prefill. What a rule saves per answer on any hardware; τ over it "
        "is about the length ratio.",
        adds=adds.passes,
        relative="ratio",
        compared=True,
        censored=True,
    ),
    Metric(
        "truncated_share",
        "Truncated",
        "%",
        1,
        "lower",
        "Answers of which a turn ended at the length limit, over all. A limit hides length, and "
        "an unfinished answer counts as wrong. Interval: Wilson.",
        adds=adds.capped,
        statistic=own_share,
        estimator=WILSON,
        compared=True,
    ),
    Metric(
        "baseline_truncated_share",
        "Baseline truncated",
        "%",
        1,
        None,
        "Answers of autoregressive decoding of which a turn ended at the length limit. Above "
        "10%, lengths and loops of the cell are marked as censored.",
        adds=adds.capped,
        statistic=other_share,
        estimator=ALONE,
    ),
    Metric(
        "loop_share",
        "Loops",
        "%",
        1,
        "lower",
        "Answers of which a turn ends in a loop: its last max(64, 4 d) tokens repeat with a "
        "period d of at most 200. Interval: Wilson.",
        adds=adds.looping,
        statistic=own_share,
        estimator=WILSON,
        compared=True,
        censored=True,
    ),
    Metric(
        "no_answer_share",
        "No answer",
        "%",
        1,
        "lower",
        "Scored answers in which the scorer found no answer, over all scored. Interval: Wilson.",
        adds=adds.unanswered,
        statistic=own_share,
        estimator=WILSON,
        compared=True,
        censored=True,
    ),
    Metric(
        "out_of_head_1k",
        "Out of head / 1k",
        "",
        1,
        "lower",
        "Per 1,000 emitted tokens, the accepted draft tokens that the lossless test rejects with "
        "the same random numbers and whose probability is below a fifth of the largest "
        "(processed; at temperature 0, at temperature 1). Rules that lengthen answers commit "
        "these. Interval: bootstrap over prompts.",
    ),
)
_OVER_BEST = (
    Metric(
        "over_best_tau",
        "Δτ",
        "",
        2,
        None,
        "τ minus that of the best lossless row, over the common prompts. Interval: paired "
        "bootstrap over prompts.",
        True,
    ),
    Metric(
        "over_best_length",
        "Length",
        "×",
        2,
        None,
        "Emitted tokens over those of the best lossless row, sum over sum.",
        censored=True,
    ),
    Metric(
        "over_best_answer",
        "Answer speedup, modelled",
        "×",
        2,
        "higher",
        "Modelled answer speedup over that of the best lossless row, prompt by prompt. Interval "
        "as for the modelled speedup.",
        estimator=DELTA,
        clock="needed",
        censored=True,
    ),
    Metric(
        "over_best_accuracy",
        "Δ accuracy",
        "pp",
        1,
        "higher",
        "Accuracy minus that of the best lossless row, items paired. Interval as for Δ accuracy "
        "over autoregressive decoding.",
        signed=True,
        statistic=lambda sums: own_share(sums) - other_share(sums),
        estimator=LEARNED_MILLER,
    ),
)
_EQUAL_D = (
    Metric(
        "equal_d_distortion",
        "D",
        "",
        3,
        "lower",
        "Distortion of the row: KL of its law of the next token from the target's at the "
        "temperature asked for, nats a token. Interval: Student's t over prompts.",
        estimator=DELTA,
    ),
    Metric(
        "equal_d_tv",
        "TV",
        "%",
        1,
        "lower",
        "Total variation of the row's law of the next token from that of the target as asked "
        "for: 0 for lossless decoding. With top-p, top-k or min-p it stands in for D, which is "
        "infinite where a rule keeps a token that the target excludes. Interval: Student's t "
        "over prompts.",
        estimator=DIVERGENCE,
    ),
    Metric(
        "equal_d_outside",
        "Outside p",
        "%",
        1,
        "lower",
        "Mass of the row's law on tokens that the target's truncation excludes. Interval: "
        "Student's t over prompts.",
        estimator=DIVERGENCE,
    ),
    Metric(
        "equal_d_speed",
        "÷ lossless that distorts no more, modelled",
        "×",
        2,
        "higher",
        "Speed by the token, prompt included, over that of the fastest lossless setting, or of "
        "plain decoding, that distorts no more. Modelled: cycles of all prompts at the time of a "
        "cycle of the timed ones. Interval: Student's t on the logarithm, with the error of a "
        "bootstrap over prompts of both passes that redoes the choice, and that of the measuring "
        "sessions. Gain: above 1; no gain above 5%: below 1.05; both one-sided at 5%, corrected "
        "for as many rules as the longest report compares.",
        estimator=LOG_SESSIONS,
        clock="needed",
        decides=True,
    ),
    Metric(
        "equal_d_speed_own",
        "on its own draft",
        "×",
        2,
        "higher",
        "The same beside lossless decoding on the row's own draft alone: lossless decoding may "
        "choose its draft, a rule has one.",
        estimator=LOG_SESSIONS,
        clock="needed",
    ),
    Metric(
        "equal_d_answer",
        "by the answer",
        "×",
        2,
        "higher",
        "The same of whole answers, prefill included: above the speed by the token where answers "
        "are shorter.",
        clock="needed",
        censored=True,
    ),
    Metric(
        "equal_d_length",
        "length at equal D",
        "×",
        2,
        None,
        "Emitted tokens over those of that lossless setting, whose answers have the length of "
        "plain decoding's.",
        censored=True,
    ),
    Metric(
        "equal_d_temperature", "T at equal D", "", 2, None, "Temperature of that lossless setting."
    ),
)
_TRACED = (
    Metric(
        "coverage",
        "JS ≤ U_min",
        "%",
        1,
        "higher",
        "Accepted draft tokens for which ARC-Decode's bound holds: the JS divergence between the "
        "target's next distributions after this token and after its own argmax is at most U_min. "
        "Interval: Wilson.",
        estimator=WILSON,
    ),
    *(
        Metric(
            f"coverage_{name}",
            title,
            "%",
            1,
            "higher",
            "JS ≤ the bound among the accepted draft tokens that are not "
            "the target's argmax: U_min, and each of its two bounds by itself.",
            estimator=WILSON,
        )
        for name, title in (
            ("differing", "Where x ≠ t"),
            ("emb", "JS ≤ U_emb"),
            ("logit", "JS ≤ U_logit"),
        )
    ),
    *(
        Metric(
            f"majority_{i}",
            f"{i} agree",
            "%",
            2,
            None,
            f"Tested contexts in which exactly {i} dropout heads agree on a token (DropMatch, "
            "Table 2).",
        )
        for i in range(1, 6)
    ),
    *(
        Metric(
            f"majority_p_{i}",
            f"p, {i} agree",
            "",
            3,
            None,
            f"Mean probability of the token on which {i} dropout heads agree.",
        )
        for i in range(1, 6)
    ),
    *(
        Metric(
            f"js_{case}_{whose}",
            f"JS(c, {whose}), {case}",
            "",
            4,
            None,
            f"Mean JS divergence, nats, of {who} to the heads' centroid where {where} "
            "(DropMatch, Table 3).",
        )
        for case, where in (
            ("dispersed", "the draft is no farther from it than the farthest head"),
            (
                "concentrated",
                "the draft is farther than every head, but its token is the majority's",
            ),
        )
        for whose, who in (("draft", "the draft"), ("heads", "the dropout heads"))
    ),
    *(
        Metric(
            f"js_{case}_share",
            f"{case}",
            "%",
            1,
            None,
            f"Tested tokens that are {case}, see JS(c, ·), {case}.",
        )
        for case in ("dispersed", "concentrated")
    ),
)
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *_SPEED,
        *_ACCEPTANCE,
        *DISTORTION,
        *_CONTROLS,
        *_QUALITY,
        *_ANSWER,
        *_OVER_BEST,
        *_EQUAL_D,
        *_TRACED,
    )
}
JUDGED = frozenset(name for name, metric in METRICS.items() if metric.judged)
"""The metrics that an LLM judge gives."""
TIMED = frozenset(name for name, metric in METRICS.items() if metric.clock == "needed")
"""The metrics that need a timed pass."""
CLOCKED = frozenset(name for name, metric in METRICS.items() if metric.clock)
"""The metrics that the clock has a part in: some ask for no timed pass, but use one."""


RENAMED = {
    "cap_hit_share": "truncated_share",
    "baseline_cap_hit_share": "baseline_truncated_share",
}
"""Old name of a metric -> its name."""


def metric(name: str) -> Metric:
    """Look up a metric by name. Raises ValueError for an unknown name."""
    if name in RENAMED:
        raise ValueError(f"metric {name!r} is now {RENAMED[name]!r}")
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}; one of: {', '.join(METRICS)}")
    return METRICS[name]
