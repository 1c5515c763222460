"""Metrics of the clock: tokens per second, speedups over plain decoding, and what they are checked
by."""

from __future__ import annotations

from results.metrics import answer_speed
from results.metrics.answer_speed import COMMON, addends
from results.metrics.delta import double_ratio
from results.metrics.metric import ALONE, DELTA, LOG_T, Addends, baseline_ratio, declared
from results.store.sample import Compared

TIMED_SUM = COMMON.index("timed")


def clock(pair: Compared) -> Addends:
    """Tokens and seconds of the whole answer, the baseline's behind."""
    if pair.timed is None:
        return None
    run, base = pair.timed.runs
    return run.tokens, run.prefill_s + run.decode_s, base.tokens, base.prefill_s + base.decode_s


@declared(
    "Speedup",
    "×",
    2,
    "higher",
    statistic=double_ratio,
    estimator=LOG_T,
    relative="ratio",
    compared=True,
    checks="speedup_modelled",
    clock="needed",
)
def speedup(pair: Compared) -> Addends:
    """Pooled tokens/s, the prompt's forward included, over that of autoregressive decoding of the
    same prompts in the same process, engine and numeric type, alternating prompt by prompt in the
    timed pass. Interval: Student's t on the logarithm, over the timed prompts, with what differs
    between measuring sessions, as for all speeds over autoregressive decoding."""
    return clock(pair)


@declared(
    "Speedup, mean of questions",
    "×",
    2,
    "higher",
    estimator=LOG_T,
    relative="ratio",
    compared=True,
    clock="needed",
)
def speedup_of_means(pair: Compared) -> Addends:
    """Mean over the timed prompts of each one's tokens/s, the prompt's forward included, over the
    same mean of autoregressive decoding: what the code of EAGLE and MARS computes."""
    counts = clock(pair)
    if counts is None or min(counts) <= 0:
        return None
    tokens, seconds, base_tokens, base_seconds = counts
    return tokens / seconds, base_tokens / base_seconds


@declared(
    "Decode speedup",
    "×",
    2,
    "higher",
    statistic=double_ratio,
    estimator=LOG_T,
    relative="ratio",
    compared=True,
    clock="used",
)
def decode_speedup(pair: Compared) -> Addends:
    """As the speedup, without the prompt's forward on both sides."""
    if pair.timed is None:
        return None
    run, base = pair.timed.runs
    return run.tokens, run.decode_s, base.tokens, base.decode_s


@declared(
    "Speedup, modelled",
    "×",
    2,
    "higher",
    statistic=answer_speed.token_speedup,
    estimator=DELTA,
    relative="ratio",
    compared=True,
    timed=TIMED_SUM,
    clock="needed",
)
def speedup_modelled(pair: Compared) -> Addends:
    """Time per token of autoregressive decoding over own, the prompt's forward included, over all
    prompts: their passes and prefills at the pooled times of the timed prompts. Interval: delta
    method on the logarithm, with what a timed prompt adds to both; Welch and Satterthwaite's
    degrees of freedom."""
    return tuple(addends(pair, [""], ""))


@declared(
    "Answer speedup, timed prompts",
    "×",
    2,
    "higher",
    estimator=LOG_T,
    relative="ratio",
    compared=True,
    clock="used",
    censored=True,
    checks="answer_speedup_modelled",
)
def answer_speedup(pair: Compared) -> Addends:
    """Seconds of autoregressive decoding of the timed prompts over own, prefill included, sum over
    sum. It checks the modelled one, and is marked where their intervals do not meet."""
    if pair.timed is None:
        return None
    run, base = pair.timed.runs
    return base.prefill_s + base.decode_s, run.prefill_s + run.decode_s


@declared(
    "Answer speedup, modelled",
    "×",
    2,
    "higher",
    statistic=answer_speed.answer_speedup,
    estimator=DELTA,
    relative="ratio",
    compared=True,
    timed=TIMED_SUM,
    clock="used",
    censored=True,
)
def answer_speedup_modelled(pair: Compared) -> Addends:
    """Seconds of autoregressive decoding over own, prefill included, over all prompts: what a user
    waits for. Passes and prefills are priced at their pooled times in the timed pass: a runaway
    among a dozen timed answers moves the direct number, not this one. Interval as for the modelled
    speedup."""
    return tuple(addends(pair, [""], ""))


@declared("Repeatable", "%", 0, None, estimator=ALONE, clock="needed")
def repeatable(pair: Compared) -> Addends:
    """Timed prompts whose tokens equal those of the quality pass."""
    return None if pair.timed is None else (pair.timed.own.parted is None, 1)


@declared("Speed", "tok/s", 1, "higher", estimator=LOG_T, compared=True, clock="needed")
def tokens_per_s(pair: Compared) -> Addends:
    """Emitted tokens over wall time, the prompt's forward included, tokenisation not."""
    return clock(pair)


@declared(
    "Baseline speed", "tok/s", 1, None, statistic=baseline_ratio, estimator=LOG_T, clock="needed"
)
def baseline_tokens_per_s(pair: Compared) -> Addends:
    """Emitted tokens over wall time of autoregressive decoding, as for the speed."""
    return clock(pair)
