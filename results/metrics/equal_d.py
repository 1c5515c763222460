"""Metrics of a row beside the fastest lossless decoding that distorts no more:
`results.metrics.frontier` computes them."""

from __future__ import annotations

from results.metrics.metric import DIVERGENCE, LOG_SESSIONS, Metric

EQUAL_D = (
    Metric(
        "equal_d_distortion",
        "D",
        "",
        3,
        "lower",
        "Distortion of the row: KL of its law of the next token from the target's at the "
        "temperature asked for, nats per token. Interval: Student's t over prompts.",
        estimator=DIVERGENCE,
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
        "Speed per token, prompt included, over that of the fastest lossless setting, or of "
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
        "per answer",
        "×",
        2,
        "higher",
        "The same of whole answers, prefill included: above the speed per token where answers "
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
