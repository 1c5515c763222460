"""Stores without decoding, as a run leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from results.store.cells import Store
from results.store.sample import Sample, Timed, timing_order
from tests.helpers.synthetic_cells import run, sample

TOKENS, ACCEPTED, STARTED = 25, 2, "2026-01-01T00:00:00+00:00"


def answers(ids: Iterable[str], autoregressive: bool) -> list[Sample]:
    """A right answer of 25 tokens to each prompt; a method commits three a cycle."""
    accepted = 0 if autoregressive else ACCEPTED
    cycles = (TOKENS - 1) // (accepted + 1)
    return [
        sample(
            name,
            range(TOKENS),
            committed=[accepted + 1] * cycles,
            accepted=[accepted] * cycles,
            texts=["word " * TOKENS],
            nll=0.5 * TOKENS,
            answer="7",
        )
        for name in ids
    ]


def clocks(own: Sequence[Sample], base: Sequence[Sample], autoregressive: bool) -> list[Timed]:
    """Each answer timed, no two in the same time; a method takes half of the baseline's."""
    rows = []
    for place, (mine, other) in enumerate(zip(own, base, strict=True)):
        baseline = None if autoregressive else run(other, 1 + place / 100)
        mine_s = run(mine, (1 if autoregressive else 0.5) + place / 70)
        rows.append(Timed(mine.id, mine_s, baseline, "host", "boot", STARTED))
    return rows


class Writer:
    """Writes complete cells that share their prompts.

    ids     of the prompts
    timed   so many of them are timed
    """

    def __init__(self, root, ids, timed=2):
        self.root = root
        first = set(timing_order(ids)[:timed])
        self.samples = {alone: answers(ids, alone) for alone in (False, True)}
        asked = {
            alone: [sample for sample in own if sample.id in first]
            for alone, own in self.samples.items()
        }
        self.timed = {alone: clocks(own, asked[True], alone) for alone, own in asked.items()}

    def write(self, key: str, config: Mapping[str, Any], autoregressive: bool):
        """One cell."""
        samples, rows = self.samples[autoregressive], self.timed[autoregressive]
        asked = {"prompts": len(samples), "timed": len(rows), "answered_before": 0}
        with Store(self.root).cell(key).lock() as cell:
            cell.write_config(config)
            cell.write_environment({"run": asked})
            for sample in samples:
                cell.append(sample)
            for row in rows:
                cell.append_timed(row)
