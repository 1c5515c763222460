"""How a cell's time divides: its timed prefill and decoding, split by the phases that a profiling
pass measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics.intervals import RESAMPLES, SEED, Interval, ends
from results.metrics.metric import Metric
from results.store.sample import TimedRun

Floats = NDArray[np.float64]
PHASES = (
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
NAMES = tuple(metric.name for metric in PHASES)


def time_shares(
    runs: Sequence[TimedRun],
    phases: Mapping[str, float] | None,
    prompts: Sequence[Mapping[str, float]] = (),
) -> dict[str, Any]:
    """Shares of prefill and decode time together, and milliseconds of the parts of a cycle; `NAMES`
    are the keys, each with `_ci95`. Empty without phases.

    runs     the timed runs, which give prefill and decode time.
    phases   seconds per cycle: draft, verify, accept, commit and, where the pass measured it, head,
             the LM head's part of verify; means over the prompts of the profiling pass.
    prompts  the same of each of these prompts. The intervals resample them and, independently, the
             runs; None for fewer than two of either.

    forward_ms   verify and accept: the target's forward and the decision on the draft
    head_ms      of that, head and accept; head_share is its share of forward_ms"""
    prefill_s, decode_s = (
        np.array([run.prefill_s for run in runs]),
        np.array([run.decode_s for run in runs]),
    )
    if phases is None or prefill_s.sum() + decode_s.sum() <= 0:
        return {}
    values = _values(
        prefill_s.sum(), decode_s.sum(), {name: np.asarray(phases[name]) for name in phases}
    )
    intervals: dict[str, Interval | None] = dict.fromkeys(values)
    parts = {
        name: np.array([prompt[name] for prompt in prompts])
        for name in phases
        if all(name in prompt for prompt in prompts)
    }
    if min(len(runs), len(prompts)) > 1:
        rng = np.random.default_rng(SEED)
        timed, profiled = (
            rng.integers(size, size=(RESAMPLES, size)) for size in (len(runs), len(prompts))
        )
        drawn = _values(
            prefill_s[timed].sum(-1),
            decode_s[timed].sum(-1),
            {name: seconds[profiled].mean(-1) for name, seconds in parts.items()},
        )
        intervals = {
            name: None if number is None else ends(number, number) for name, number in drawn.items()
        }
    return {
        **{name: None if number is None else float(number) for name, number in values.items()},
        **{f"{name}_ci95": interval for name, interval in intervals.items()},
    }


def _values(
    prefill_s: Floats, decode_s: Floats, parts: Mapping[str, Floats]
) -> dict[str, Floats | None]:
    """`NAMES` -> value, for single numbers or for resamples."""
    draft, verify, accept, commit = (
        parts[name] for name in ("draft", "verify", "accept", "commit")
    )
    cycle, decoding = draft + verify + accept + commit, decode_s / (prefill_s + decode_s)
    head = None if "head" not in parts else parts["head"] + accept
    return {
        "prefill_share": 1.0 - decoding,
        "draft_time_share": decoding * draft / cycle,
        "verify_share": decoding * verify / cycle,
        "accept_share": decoding * (accept + commit) / cycle,
        "cycle_ms": 1e3 * cycle,
        "forward_ms": 1e3 * (verify + accept),
        "head_ms": None if head is None else 1e3 * head,
        "head_share": None if head is None else head / (verify + accept),
    }
