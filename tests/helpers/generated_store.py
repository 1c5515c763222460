"""Stores of any size without decoding, file by file what a run leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from results.store.records import SCHEMA, line_of
from results.store.sample import Sample, Timed, timing_order, to_plain
from tests.helpers.synthetic_cells import run, sample

ENVIRONMENT = {"since": "2026-01-01T00:00:00+00:00", "argv": ["bench"], "packages": {"torch": "2.13.0"},
               "cpu": {"model": "a processor", "cores": 2, "threads": 1}, "accelerator": None, "earlier": []}
TOKENS, ACCEPTED, STARTED = 25, 2, "2026-01-01T00:00:00+00:00"


DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def answers(ids: Iterable[str], autoregressive: bool) -> list[Sample]:
    """A right answer of 25 tokens to each prompt; a method commits three a cycle."""
    accepted = 0 if autoregressive else ACCEPTED
    cycles = (TOKENS - 1) // (accepted + 1)
    return [sample(name, range(TOKENS), committed=[accepted + 1] * cycles, accepted=[accepted] * cycles,
                   texts=["word " * TOKENS], nll=0.5 * TOKENS, answer="7") for name in ids]


def clocks(own: Sequence[Sample], base: Sequence[Sample], autoregressive: bool) -> list[Timed]:
    """Each answer timed, no two in the same time; a method takes half of the baseline's."""
    rows = []
    for place, (mine, other) in enumerate(zip(own, base, strict=True)):
        baseline = None if autoregressive else run(other, 1 + place / 100)
        mine_s = run(mine, (1 if autoregressive else 0.5) + place / 70)
        rows.append(Timed(mine.id, mine_s, baseline, "host", "boot", STARTED))
    return rows


class Writer:
    """Writes complete cells that share their prompts; without waiting for the disk.

    ids     of the prompts
    timed   so many of them are timed
    """

    def __init__(self, root: Path, ids: Sequence[str], timed: int = 2) -> None:
        self.root = root
        self.samples = {alone: answers(ids, alone) for alone in (False, True)}
        first = {alone: [sample for sample in own if sample.id in timing_order(ids)[:timed]]
                 for alone, own in self.samples.items()}
        self.timed = {alone: clocks(first[alone], first[True], alone) for alone in (False, True)}
        self._made: dict[bool, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}

    def write(self, key: str, config: Mapping[str, Any], autoregressive: bool = False, complete: bool = True) -> None:
        """One cell; of one that is not `complete` another prompt was asked for."""
        folder = self.root / key
        folder.mkdir(parents=True, exist_ok=True)
        samples, rows = self._plain(autoregressive)
        (folder / ".lock").write_text("process 1 on host")
        (folder / "cell.yaml").write_text(yaml.dump({"schema": SCHEMA, **config}, Dumper=DUMPER, sort_keys=False))
        run = {"prompts": len(samples) + (not complete), "timed": len(rows)}
        (folder / "environment.json").write_text(line_of(key, {**ENVIRONMENT, "run": run}))
        (folder / "samples.jsonl").write_text("".join(line_of(key, one) for one in samples))
        (folder / "timed.jsonl").write_text("".join(line_of(key, row) for row in rows))

    def _plain(self, alone: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Samples and timed prompts as plain data, made once."""
        if alone not in self._made:
            rows = [asdict(row) for row in self.timed[alone]]
            self._made[alone] = [to_plain(one) for one in self.samples[alone]], rows
        return self._made[alone]
