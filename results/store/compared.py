"""A prompt's sample beside the autoregressive one of the same prompt, and the clock of both where it was timed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from results.store.sample import FailedSample, Record, Sample, another_prompt, hashes_differ
from results.store.timed import Timed


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt that was answered by a cell and by its autoregressive baseline.

    sample    the cell's answer
    baseline  the baseline's; in an autoregressive cell the same object as `sample`
    timed     what the clock said of both; None for a prompt that was not timed
    """

    sample: Sample
    baseline: Sample
    timed: Timed | None = None

    @property
    def id(self) -> str:
        """The prompt's id, unique within its cell."""
        return self.sample.id


def compare(records: Iterable[Record], baselines: Mapping[str, Record],
            timed: Mapping[str, Timed]) -> list[Compared | FailedSample]:
    """One entry for each record whose prompt the baseline has tried too; `baselines` and `timed`: prompt id -> record.
    A prompt that failed in either cell has failed, and so has one that is not the same in both."""
    compared: list[Compared | FailedSample] = []
    for record in records:
        baseline = baselines.get(record.id)
        if isinstance(record, FailedSample):
            compared.append(record)
        elif isinstance(baseline, FailedSample):
            compared.append(FailedSample(record.id, f"baseline: {baseline.error}"))
        elif baseline is not None and hashes_differ(record, baseline):
            reason = another_prompt(record.id, baseline.prompt_sha256 or "", record.prompt_sha256 or "")
            compared.append(FailedSample(record.id, f"baseline: {reason}; remove the cell that is older"))
        elif baseline is not None:
            compared.append(Compared(record, baseline, timed.get(record.id)))
    return compared
