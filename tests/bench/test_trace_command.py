"""trace=true: an untimed second pass that agrees with the first, whole or not at all, read back
offline."""

from __future__ import annotations

import json
import operator

import numpy as np
import pytest

from bench.run import quality
from results.store.traces import EMITTED, TraceFolder
from tests.helpers.summaries import written

RUN = "decoding.temperature=1 decoding.max_new_tokens=10 draft.length=3"


def part_times(folder: TraceFolder) -> dict[str, int]:
    return {part.name: part.stat().st_mtime_ns for part in sorted(folder.path.glob("*.parquet"))}


def test_a_trace_tells_the_samples_and_leaves_them_alone(command, monkeypatch, no_models):
    words = f"method=mars_sampling rule.theta=0.3 task=mini_chat {RUN}"
    plain = command(words)
    before = (plain.cell.path / "samples.jsonl").read_bytes(), written(plain.cell)
    assert not TraceFolder(plain.cell).exists()
    asked = f"{words} quality_batch=2 trace=true"
    result = command(asked)
    assert not result.err
    assert ((result.cell.path / "samples.jsonl").read_bytes(), written(result.cell)) == before
    traces = TraceFolder(result.cell)
    frame, threshold = traces.frame(), traces.threshold()
    assert (threshold.name, threshold.relation, threshold.value) == ("theta", ">", 0.3)
    parts = [traces.prompts(0), traces.prompts(1)]
    samples = result.cell.samples()
    assert list(map(len, parts)) == [2, 1]
    assert {*parts[0], *parts[1]} == {sample.id for sample in samples}
    for sample in samples:
        rows = frame[frame["prompt"] == sample.id].sort_values(["turn", "cycle", "depth"])
        firsts = {0, sample.turn_tokens[0]}  # they come from the prefill
        tokens = [token for at, token in enumerate(sample.output_ids) if at not in firsts]
        assert rows[rows["clause"].isin(EMITTED)]["token"].tolist() == tokens
        assert (rows["clause"] == "relaxed").sum() == sample.relaxed

    times = part_times(traces)
    traces.part(1).unlink()
    seen = []
    monkeypatch.setattr(quality, "difference", lambda record, sample: seen.append(record.id))
    command(asked)
    assert seen == traces.prompts(1) == parts[1], "only what was missing is traced again"
    assert part_times(traces)["00000.parquet"] == times["00000.parquet"]
    command(asked, "n=5")
    assert traces.frame()["prompt"].nunique() == 5
    times = part_times(traces)
    no_models()
    command(asked)
    assert part_times(traces) == times and len(times) == 3
    ids = [sample.id for sample in samples]
    assert set(TraceFolder(result.cell, ids).frame()["prompt"]) == set(ids), "those asked for"


def test_another_decoding_is_refused(command):
    result = command("method=sps", RUN)
    file = result.cell.path / "samples.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        row.pop("digest")  # as if another model had decoded them
    rows[1]["output_ids"][-1] += 1
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    traced = command("method=sps trace=true", RUN, status=1)
    assert rows[1]["id"] in traced.err and "output_ids" in traced.err
    command("method=sps", RUN)  # the measurement itself is whole


HOLDS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


@pytest.mark.parametrize(
    "method",
    [
        "method=mars rule.theta=0.5",
        "method=fsd rule.threshold=0.3",
        "method=dropmatch",
        "method=dropmatch rule.variant=naive",
        "method=mars_released drafter=eagle3 rule.theta=0.5",
    ],
)
def test_the_traced_score_beside_its_threshold_is_the_decision(command, method):
    result = command(method, "trace=true", RUN)
    assert not result.err
    traces = TraceFolder(result.cell)
    frame, threshold = traces.frame(), traces.threshold()
    drafted = frame[frame["clause"] != "drawn"]
    score, value = drafted["score"].to_numpy(np.float32), np.float32(threshold.value)
    holds = HOLDS[threshold.relation](score, value)
    kept = np.where(holds, drafted["inside"], drafted["outside"])
    assert kept.tolist() == drafted["accept"].tolist() and len(set(kept)) == 2
