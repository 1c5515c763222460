"""The metrics that tell what a gain consists of, and how a row stands beside the best lossless one."""

from __future__ import annotations

from results.metrics.metric import Metric

CONTROLS = (
    Metric("nll", "NLL", "", 3, None,
           "Mean −log p(token) of the emitted tokens under the raw target, nats. A value below that of plain sampling "
           "at the same temperature means that the output is greedier than the temperature implies."),
    Metric("baseline_nll", "Baseline NLL", "", 3, None,
           "Mean −log p(token) of the tokens of autoregressive decoding under the raw target, nats."),
    Metric("distinct_2", "Distinct-2", "%", 1, None,
           "Distinct pairs of neighbouring tokens over all such pairs in a prompt's answers, all repeats pooled; mean "
           "over prompts. Comparable only at equal numbers of repeats."),
    Metric("self_agreement", "Self-agreement", "%", 1, None,
           "Edit similarity of two answers to one prompt with different random numbers, mean over pairs and prompts."),
    Metric("tau_gain", "Δτ", "", 2, None,
           "τ minus that of the lossless rule on the same drafter, settings and prompts; the sum of its three parts: "
           "relaxation, greedier and q_mode. Intervals: bootstrap over prompts that redoes the match.", True),
    Metric("tau_gain_relaxed", "relaxation", "", 2, None,
           "Part of Δτ beyond lossless decoding whose text is equally likely: τ of the rule (with q_mode exact) minus "
           "that of the lossless rule at the temperature of equal NLL. NLL sees only the net: a rule that takes some "
           "tokens too likely and others too unlikely is matched by their mean.", True),
    Metric("tau_gain_greedier", "greedier", "", 2, None,
           "Part of Δτ due to greedier decoding: τ of the lossless rule at the temperature T* of equal NLL, minus that "
           "at T. 0 where the rule's text is less likely than plain decoding's at T (hotter than T).", True),
    Metric("tau_gain_q", "q_mode", "", 2, None,
           "Part of Δτ due to q_mode: τ minus that of the same rule with q_mode exact.", True),
    Metric("tau_gain_temperature", "T*", "", 2, None,
           "Temperature at which plain decoding has the rule's NLL (with q_mode exact), at most that asked for."),
    Metric("tau_gain_relaxed_by_score", "relaxation by score", "", 2, None,
           "Relaxation if the score takes the place of the NLL in the match; only where plain decoding's scores at "
           "temperature 0 and at T differ significantly.", True),
    Metric("tau_gain_greedier_by_score", "greedier by score", "", 2, None,
           "Greedier part of Δτ by the same match on the score.", True),
    Metric("tau_gain_argmax", "argmax tokens", "", 2, None,
           "Another definition of greedier, by mechanism: τ of the same rule that keeps only what the lossless test or "
           "the target's argmax keeps, minus that of the lossless rule.", True),
)
OVER_BEST = (
    Metric("over_best_tau", "Δτ", "", 2, None,
           "τ minus that of the best lossless row, over the common prompts. Interval: paired bootstrap over prompts.",
           True),
    Metric("over_best_length", "Length", "×", 2, None,
           "Emitted tokens over those of the best lossless row, sum over sum."),
    Metric("over_best_answer", "Answer speedup", "×", 2, "higher",
           "Modelled answer speedup over that of the best lossless row, prompt by prompt. Interval as for the modelled "
           "speedup. Verdict as for the answer speedup."),
    Metric("over_best_accuracy", "Δ accuracy", "pp", 1, "higher",
           "Accuracy minus that of the best lossless row, items paired. Interval and verdict as for Δ accuracy over "
           "autoregressive decoding.", True),
)
FRONTIER = (
    Metric("frontier_speed", "Answer speedup", "×", 2, "higher",
           "Cost of an answer of plain decoding at the temperature asked for, over own: cycles of all prompts at the "
           "price of a cycle in the timed pass, prefill included. Lossless rows without a timed pass take the clock "
           "of their setting at the temperature asked for. Interval: bootstrap over prompts of both passes, widened "
           "for the few that are timed, as for all numbers of the frontier."),
    Metric("frontier_answer", "at equal NLL", "×", 2, "higher",
           "Answer speed over that of the frontier, the fastest lossless setting at each temperature chosen on the "
           "other half of the prompts, or plain decoding where that is faster, at the temperature where lossless text "
           "is as likely. Above 1: above the frontier."),
    Metric("frontier_tau", "Δτ at equal NLL", "", 2, None,
           "τ minus that of the frontier's lossless setting at equal NLL.", True),
    Metric("frontier_temperature", "T of equal NLL", "", 2, None,
           "Temperature at which lossless text has the row's NLL."),
    Metric("frontier_same_speed", "T of equal speed", "", 2, None,
           "Temperature at which the frontier's answers cost as much as the row's."),
    Metric("frontier_nll", "Δ NLL at equal speed", "", 3, "lower",
           "NLL minus that of the frontier at the temperature of equal cost, nats a token: above 0, lossless decoding "
           "there is as fast and its text is likelier.", True),
)
