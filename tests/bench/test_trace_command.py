"""trace=true and replay=: an untimed second pass that agrees with the first, whole or not at all, read back offline."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.run import quality
from bench.run.models import ModelPool
from results.metrics.replay import COLUMNS, kept_at, replay, walked
from results.store.traces import EMITTED, KEPT, TESTED, TraceFolder
from tests.helpers.summaries import written

RUN = ("decoding.temperature=1", "decoding.max_new_tokens=10", "draft.length=3")


def part_times(folder: TraceFolder) -> dict[str, int]:
    return {part.name: part.stat().st_mtime_ns for part in sorted(folder.path.glob("*.parquet"))}


def test_a_trace_tells_the_samples_and_leaves_them_alone(command, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = command("method=mars_sampling", "rule.theta=0.3", "task=mini_chat", *RUN)
    before = (plain.cell.path / "samples.jsonl").read_bytes(), written(plain.cell)
    assert not TraceFolder(plain.cell).exists()
    asked = ("method=mars_sampling", "rule.theta=0.3", "task=mini_chat", "quality_batch=2", "trace=true", *RUN)
    result = command(*asked)
    assert result.status == 0 and not result.err
    assert ((result.cell.path / "samples.jsonl").read_bytes(), written(result.cell)) == before
    traces = TraceFolder(result.cell)
    frame, threshold = traces.frame(), traces.threshold()
    assert (threshold.name, threshold.relation, threshold.value) == ("theta", ">", 0.3)
    parts = [traces.prompts(0), traces.prompts(1)]
    assert list(map(len, parts)) == [2, 1] and {*parts[0], *parts[1]} == {s.id for s in result.cell.samples()}
    for sample in result.cell.samples():
        start, first = 0, 0
        for turn, tokens in enumerate(sample.turn_tokens):
            own = frame[(frame["prompt"] == sample.id) & (frame["turn"] == turn)]
            path = own[own["clause"].isin(EMITTED)].sort_values(["cycle", "depth"], kind="stable")
            assert path["token"].tolist()[:tokens - 1] == sample.output_ids[start + 1:start + tokens]
            cycles = own["cycle"].nunique()
            by_cycle = own[own["clause"].isin(KEPT)].groupby("cycle").size()
            accepted = by_cycle.reindex(range(cycles), fill_value=0).tolist()
            assert accepted == sample.accepted[first:first + cycles]
            start, first = start + tokens, first + cycles
        assert (frame[frame["prompt"] == sample.id]["clause"] == "relaxed").sum() == sample.relaxed

    times = part_times(traces)
    traces.part(1).unlink()
    seen = []
    monkeypatch.setattr(quality, "difference", lambda record, sample: seen.append(record.id))
    command(*asked)
    assert seen == traces.prompts(1) == parts[1], "only what was missing is traced again"
    assert part_times(traces)["00000.parquet"] == times["00000.parquet"]
    monkeypatch.setattr(ModelPool, "method", lambda pool, cell: pytest.fail("a model was loaded"))
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


@pytest.mark.parametrize("method", [("method=mars", "rule.theta=0.5"), ("method=fsd", "rule.threshold=0.3"),
                                    ("method=dropmatch",), ("method=dropmatch", "rule.variant=naive"),
                                    ("method=mars_released", "drafter=eagle3", "rule.theta=0.5")])
def test_replay_at_the_traced_threshold_is_the_trace(command, method) -> None:
    """The replayed first-order acceptance is the traced one exactly, token by token; relaxing more keeps more."""
    result = command(*method, "trace=true", *RUN)
    assert result.status == 0 and not result.err
    traces = TraceFolder(result.cell)
    frame, threshold = traces.frame(), traces.threshold()
    drafted = frame[frame["clause"] != "drawn"]
    kept = kept_at(drafted, threshold, threshold.value)
    assert kept.tolist() == drafted["accept"].tolist() and len(set(kept)) == 2
    assert walked(drafted, kept).tolist() == drafted["clause"].isin(KEPT).tolist()
    [row] = replay(traces.frame(COLUMNS), threshold, [threshold.value]).itertuples()
    assert row.acceptance == drafted[drafted["clause"].isin(TESTED)]["accept"].mean()
    cycles = frame.groupby(["prompt", "turn", "cycle"]).ngroups
    assert row.accept_len == drafted["clause"].isin(KEPT).sum() / cycles
    ends = replay(frame, threshold, [-np.inf, np.inf])["acceptance"].tolist()
    wide = drafted[drafted["clause"].isin(TESTED)]
    sides = [wide["inside"].mean(), wide["outside"].mean()]
    assert ends == (sides if threshold.relation in (">", ">=") else sides[::-1])


def test_the_replay_command(command, monkeypatch: pytest.MonkeyPatch) -> None:
    command("method=fsd", "trace=true", *RUN)
    monkeypatch.setattr("bench.run.jobs.answer", lambda *_, **__: pytest.fail("something was decoded"))
    result = command("method=fsd", "replay=[0.1,0.4,0.8]", *RUN)
    assert result.status == 0 and "threshold = 0.4" in result.out
    written = next(word for word in result.out.split() if word.endswith(".csv,"))[:-1]
    lines = Path(written).read_text().splitlines()
    assert lines[0].startswith("threshold,acceptance") and len(lines) == 4
    assert command("method=sps", "replay=auto", *RUN).status == 2


def test_a_trace_of_some_prompts_is_not_replayed(command) -> None:
    cell = command("method=fsd", "trace=true", "quality_batch=2", *RUN).cell
    TraceFolder(cell).part(1).unlink()
    TraceFolder(cell).write_failure("the disk was full")
    result = command("method=fsd", "replay=auto", *RUN)
    [line] = result.err.splitlines()
    assert result.status == 2 and "prompts are not in its trace (the disk was full); run the cell again" in line
