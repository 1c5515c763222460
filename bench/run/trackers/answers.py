"""The answers of a cell as rows of a tracker's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.run.texts import texts_of
from results.reports.tokens import COLUMNS, answers_page, by_turn, coloured, turns_of
from results.store.sample import FailedSample
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.run.requested_cell import RequestedCell
    from results.store.compared import Compared


PAGE_COLUMNS = ("id", "score", "tokens", "tau")


def coloured_answers(folder: RequestedCell, records: Sequence[Compared | FailedSample]) -> str | None:
    """A page of these answers with coloured tokens; None where there are none, or where the target's tokenizer is not
    on this machine. Raises StoreError."""
    good, texts = [record for record in records if not isinstance(record, FailedSample)], texts_of(folder.cell)
    if texts is None or not good:
        return None
    traces = TraceFolder(folder, [record.id for record in good])
    trace = by_turn(traces.frame(COLUMNS), texts) if traces.exists() else {}
    rows = [([row_of(record).get(name) for name in PAGE_COLUMNS], coloured(turns_of(record.sample, trace, texts)))
            for record in good]
    return answers_page(PAGE_COLUMNS, rows)


def row_of(record: Compared | FailedSample) -> dict[str, Any]:
    """The row of one prompt: its sample and the ratios of it; metrics without a value are left out."""
    if isinstance(record, FailedSample):
        return {"id": record.id, "error": record.error}
    sample, timed = record.sample, record.timed
    cycles = len(sample.committed)
    row: dict[str, Any] = {"id": sample.id, "text": "\n\n".join(sample.texts), "score": sample.score,
                           "answer": sample.answer, "tokens": len(sample.output_ids)}
    if cycles:
        row |= {"tau": sum(sample.committed) / cycles, "accept_len": sum(sample.accepted) / cycles}
    if timed is not None:
        own, base = timed.runs
        row |= {"prefill_s": own.prefill_s, "decode_s": own.decode_s}
        if own.decode_s:
            row["tokens_per_s"] = own.tokens / own.decode_s
        if timed.baseline is not None and own.decode_s and base.decode_s and base.tokens:
            row["speedup"] = row["tokens_per_s"] / (base.tokens / base.decode_s)
    return {key: value for key, value in row.items() if value is not None}
