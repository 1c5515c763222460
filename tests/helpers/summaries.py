"""The metrics of a cell as summary.json tells other programs."""

from __future__ import annotations

import json

from results.metrics.catalog import METRICS
from results.store.cells import CellFolder
from results.store.sample import FailedSample, JudgeSummary


class Written:
    """What summary.json holds, by attribute; a metric that it leaves out is None."""

    def __init__(self, plain):
        self.plain = plain

    @property
    def judge(self) -> JudgeSummary | None:
        return JudgeSummary.model_validate(self.plain["judge"]) if "judge" in self.plain else None

    def __getattr__(self, name):
        if name not in self.plain and name.removesuffix("_ci95") not in {*METRICS, "unscored"}:
            raise AttributeError(name)
        return self.plain.get(name)

    def __eq__(self, other):
        return isinstance(other, Written) and self.plain == other.plain


def written(cell: CellFolder) -> Written | None:
    """None for a cell without a summary.json."""
    path = cell.path / "summary.json"
    if not path.exists():
        return None
    plain = json.loads(path.read_text())
    return Written({name: value for name, value in plain.items() if name != "digest"})


def failed_samples(cell: CellFolder) -> list[FailedSample]:
    """The prompts of a cell that failed."""
    return [record for record in cell.samples() if isinstance(record, FailedSample)]
