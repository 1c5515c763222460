"""How much sooner an answer is complete: direct on the timed prompts, and modelled over all
prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from results.metrics.delta import Estimate, estimate
from results.store.sample import Compared, batches, is_rated

Floats = NDArray[np.float64]
COMMON = (
    "prompts",
    "committed",
    "tokens",
    "base_tokens",
    "base_passes",
    "base_decode_s",
    "base_cycles",
    "timed",
    "prefill_s",
    "base_prefill_s",
)
"""What a prompt adds to the sums, in this order. `base_decode_s` and `base_cycles` are of the timed
prompts on which both took a cycle, `timed` and the prefills of all timed ones. Behind these, three
for each setting: its passes, and seconds and cycles of its timed prompts."""


class Priced:
    """The answers of a row as sums over prompts: the passes of all, at the pooled seconds a pass of
    the timed ones."""

    def __init__(
        self, rows: Floats, units: Sequence[str], strata: Sequence[tuple[bool, str]]
    ) -> None:
        """`rows`: [prompts, `COMMON` and three for each setting]; `units`: what was timed at once
        with each prompt; `strata`: whether it was timed, and the setting that decoded it."""
        self._rows, self._units, self._strata = rows, units, strata
        cycles = rows[:, len(COMMON) + 2 :: 3]
        used = rows[:, len(COMMON) :: 3].sum(0) > 0
        timed_units = [
            {unit for unit, count in zip(units, counts, strict=True) if count}
            for counts in cycles.T[used]
        ]
        self.is_known = bool(timed_units) and all(timed_units)
        self._has_spread = all(len(timed) > 1 for timed in timed_units)

    @classmethod
    def of(cls, pairs: Sequence[Compared], settings: Mapping[str, str] | None = None) -> Self:
        """`settings`: prompt id -> the setting that decoded it, where a row mixes several; a cycle
        of each has its own price."""
        names = settings or {}
        kinds = sorted(set(names.values())) or [""]
        rows = np.array([addends(pair, kinds, names.get(pair.id, "")) for pair in pairs], float)
        strata = [(pair.timed is not None, names.get(pair.id, "")) for pair in pairs]
        return cls(
            rows.reshape(len(pairs), len(COMMON) + 3 * len(kinds)), unit_names(pairs), strata
        )

    def estimate(self, statistic: Callable[[Floats], Floats]) -> Estimate | None:
        """A statistic of this row. None without a clock; without an error where a setting has fewer
        than two timed prompts or batches."""
        if not self.is_known:
            return None
        index = {name: i for i, name in enumerate(dict.fromkeys(self._units))}
        sums = np.zeros((len(index), self._rows.shape[1]))
        strata = [(False, "")] * len(index)
        for unit, row, stratum in zip(self._units, self._rows, self._strata, strict=True):
            sums[index[unit]] += row
            strata[index[unit]] = max(strata[index[unit]], stratum)
        estimated = estimate(sums, statistic, strata)
        if estimated is None or self._has_spread:
            return estimated
        return Estimate(estimated.value, None, 0.0)


def unit_names(pairs: Sequence[Compared]) -> list[str]:
    """The observation that each prompt belongs to: samples of one item are one, and so are prompts
    timed at once."""
    names = {pair.id: pair.sample.item for pair in pairs}
    for batch in batches(pair.timed for pair in pairs if pair.timed is not None):
        if len(batch) > 1:
            names |= dict.fromkeys((row.id for row in batch), " + ".join(row.id for row in batch))
    return [names[pair.id] for pair in pairs]


def addends(pair: Compared, settings: Sequence[str], setting: str) -> list[float]:
    """What a prompt adds: `COMMON` and three for each setting, 0 for those that did not decode
    it."""
    sample, base, timed = pair.sample, pair.baseline, pair.timed
    passes = float(len(sample.committed))
    spent = base_spent = (0.0, 0.0)
    prefills = [0.0, 0.0, 0.0]
    if timed is not None:
        prefills = [1.0, *(run.prefill_s for run in timed.runs)]
        if is_rated(timed):
            spent, base_spent = ((run.decode_s, float(run.cycles)) for run in timed.runs)
    common = [
        1.0,
        float(sum(sample.committed)),
        float(len(sample.output_ids)),
        float(len(base.output_ids)),
        float(len(base.committed)),
        *base_spent,
        *prefills,
    ]
    for name in settings:
        common += [passes, *spent] if name == setting else [0.0, 0.0, 0.0]
    return common


def _column(sums: Floats, name: str) -> Floats:
    return np.asarray(sums[..., COMMON.index(name)])


def _decode(sums: Floats) -> Floats:
    """Seconds of the passes of all answers."""
    passes, seconds, cycles = (sums[..., len(COMMON) + part :: 3] for part in range(3))
    return np.asarray(
        (passes * np.divide(seconds, cycles, out=np.zeros_like(seconds), where=cycles > 0)).sum(-1)
    )


def _token(sums: Floats) -> Floats:
    """Seconds of an autoregressive token."""
    return np.asarray(_column(sums, "base_decode_s") / _column(sums, "base_cycles"))


def answer_speedup(sums: Floats) -> Floats:
    """(Σ baseline passes · t_AR + prefills) ÷ (Σ own passes · t_cycle + prefills)."""
    prefills, base_prefills = (
        _column(sums, f"{arm}prefill_s") * _column(sums, "prompts") / _column(sums, "timed")
        for arm in ("", "base_")
    )
    baseline = _column(sums, "base_passes") * _token(sums) + base_prefills
    return np.asarray(baseline / (_decode(sums) + prefills))


def token_speedup(sums: Floats) -> Floats:
    """`answer_speedup` over the ratio of lengths: time per token, prompts included, of the baseline
    over own."""
    lengths = _column(sums, "tokens") / _column(sums, "base_tokens")
    return np.asarray(answer_speedup(sums) * lengths)


MODELLED = {
    "answer_speedup_modelled": answer_speedup,
    "speedup_modelled": token_speedup,
}
"""Metric -> its statistic of the sums of `Priced`."""


def modelled_speeds(
    pairs: Sequence[Compared], settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The metrics of `MODELLED` with their intervals: passes and prefills of all prompts, at the
    pooled seconds of the timed ones. One runaway answer among a dozen timed ones decides a direct
    number, but none of these. `settings`: as `Priced` has them. None without a clock."""
    priced, values = Priced.of(pairs, settings), dict[str, Any]()
    for name, statistic in MODELLED.items():
        speed = priced.estimate(statistic)
        values[name] = None if speed is None else speed.value
        values[f"{name}_ci95"] = None if speed is None else speed.timed_interval()
    return values
