"""trace=true: an untimed second pass that agrees with the first, whole or not at all, read back
offline."""

from __future__ import annotations

import json
import operator

import numpy as np
import pytest

from bench.run import quality
from bench.run.models import ModelPool
from results.store.traces import EMITTED, KEPT, TraceFolder
from tests.helpers.summaries import written

RUN = ("decoding.temperature=1", "decoding.max_new_tokens=10", "draft.length=3")


def part_times(folder: TraceFolder) -> dict[str, int]:
    return {part.name: part.stat().st_mtime_ns for part in sorted(folder.path.glob("*.parquet"))}


def test_a_trace_tells_the_samples_and_leaves_them_alone(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = command("method=mars_sampling", "rule.theta=0.3", "task=mini_chat", *RUN)
    before = (plain.cell.path / "samples.jsonl").read_bytes(), written(plain.cell)
    assert not TraceFolder(plain.cell).exists()
    asked = (
        "method=mars_sampling",
        "rule.theta=0.3",
        "task=mini_chat",
        "quality_batch=2",
        "trace=true",
        *RUN,
    )
    result = command(*asked)
    assert result.status == 0 and not result.err
    assert ((result.cell.path / "samples.jsonl").read_bytes(), written(result.cell)) == before
    traces = TraceFolder(result.cell)
    frame, threshold = traces.frame(), traces.threshold()
    assert (threshold.name, threshold.relation, threshold.value) == ("theta", ">", 0.3)
    parts = [traces.prompts(0), traces.prompts(1)]
    assert list(map(len, parts)) == [2, 1] and {*parts[0], *parts[1]} == {
        s.id for s in result.cell.samples()
    }
    for sample in result.cell.samples():
        start, first = 0, 0
        for turn, tokens in enumerate(sample.turn_tokens):
            own = frame[(frame["prompt"] == sample.id) & (frame["turn"] == turn)]
            path = own[own["clause"].isin(EMITTED)].sort_values(["cycle", "depth"], kind="stable")
            assert (
                path["token"].tolist()[: tokens - 1]
                == sample.output_ids[start + 1 : start + tokens]
            )
            cycles = own["cycle"].nunique()
            by_cycle = own[own["clause"].isin(KEPT)].groupby("cycle").size()
            accepted = by_cycle.reindex(range(cycles), fill_value=0).tolist()
            assert accepted == sample.accepted[first : first + cycles]
            start, first = start + tokens, first + cycles
        assert (frame[frame["prompt"] == sample.id]["clause"] == "relaxed").sum() == sample.relaxed

    times = part_times(traces)
    traces.part(1).unlink()
    seen = []
    monkeypatch.setattr(quality, "difference", lambda record, sample: seen.append(record.id))
    command(*asked)
    assert seen == traces.prompts(1) == parts[1], "only what was missing is traced again"
    assert part_times(traces)["00000.parquet"] == times["00000.parquet"]
    monkeypatch.setattr(ModelPool, "load", lambda pool, cell: pytest.fail("a model was loaded"))
    assert command(*asked).status == 0


def test_another_decoding_is_refused(command) -> None:
    result = command("method=sps", *RUN)
    file = result.cell.path / "samples.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        row.pop("digest")  # as if another model had decoded them
    rows[1]["output_ids"][-1] += 1
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    traced = command("method=sps", "trace=true", *RUN)
    assert traced.status == 1 and rows[1]["id"] in traced.err and "output_ids" in traced.err
    assert command("method=sps", *RUN).status == 0, "the measurement itself is whole"


@pytest.mark.parametrize(
    "method",
    [
        ("method=mars", "rule.theta=0.5"),
        ("method=fsd", "rule.threshold=0.3"),
        ("method=dropmatch",),
        ("method=dropmatch", "rule.variant=naive"),
        ("method=mars_released", "drafter=eagle3", "rule.theta=0.5"),
    ],
)
def test_the_traced_score_beside_its_threshold_is_the_decision(command, method) -> None:
    result = command(*method, "trace=true", *RUN)
    assert result.status == 0 and not result.err
    traces = TraceFolder(result.cell)
    frame, threshold = traces.frame(), traces.threshold()
    drafted = frame[frame["clause"] != "drawn"]
    holds = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}[
        threshold.relation
    ]
    over = holds(drafted["score"].to_numpy(np.float32), np.float32(threshold.value))
    kept = np.where(over, drafted["inside"], drafted["outside"])
    assert kept.tolist() == drafted["accept"].tolist() and len(set(kept)) == 2
