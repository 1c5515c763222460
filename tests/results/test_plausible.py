"""Files that no decoding can have written give no number, and nothing half imported stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results.exchange import registry
from results.exchange.base import ExchangeError
from results.exchange.imported import bring_in, imported_folders

FILES = Path(__file__).parent / "exchange_files"
SPEC_BENCH, BASELINE, VLLM = FILES / "spec_bench.jsonl", FILES / "spec_bench_baseline.jsonl", FILES / "vllm.jsonl"


def changed(source: Path, into: Path, change: Callable[[dict[str, Any]], object], line: int = 0) -> Path:
    lines = source.read_text().splitlines()
    data = json.loads(lines[line])
    change(data)
    lines[line] = json.dumps(data)
    into.write_text("\n".join(lines) + "\n")
    return into


@pytest.mark.parametrize(("field", "value", "complaint"), [
    ("new_tokens", [10 ** 400], "out of bounds"),
    ("new_tokens", [-3], "new_tokens"),
    ("accept_lengths", [10 ** 400], "out of bounds"),
    ("accept_lengths", [5000, 1], "5000 tokens in one cycle"),
    ("new_tokens", [1 << 60], "out of bounds"),
    ("new_tokens", [7_000_000], "tokens"),
    ("wall_time", [1e308], "seconds"),
])
def test_impossible_numbers_name_the_line(tmp_path: Path, field: str, value: Any, complaint: str) -> None:
    file = changed(SPEC_BENCH, tmp_path / "a.jsonl", lambda data: data["choices"][0].update({field: value}))
    with pytest.raises(ExchangeError, match=rf"a\.jsonl line 1: .*{complaint}") as caught:
        bring_in(tmp_path / "imported", "spec_bench", registry.converter("spec_bench"), file)
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 400
    assert not list((tmp_path / "imported").glob("*"))


@pytest.mark.parametrize(("accepted", "proposed", "tokens", "complaint"), [
    ([9, 1], [2, 18], None, "accepted: 9 of 2 draft tokens"),
    ([2, 1], [3], None, "proposed: 1 cycles, but accepted has 2"),
    (None, None, 11, "tokens: 11, but the histogram's cycles committed 25"),
])
def test_counts_that_contradict_each_other_name_the_line(tmp_path: Path, accepted: list[int] | None,
                                                         proposed: list[int] | None, tokens: int | None,
                                                         complaint: str) -> None:
    def contradict(data: dict[str, Any]) -> None:
        counts = data["metrics"]["speculative_decoding"]
        for name in ("per_step_accepted", "per_step_drafted"):
            counts.pop(name, None)
        cycles = [1] * 10 + [4] if accepted is None else accepted
        counts["acceptance_histogram"] = [cycles.count(i) for i in range(max(cycles) + 1)]
        counts |= {"num_spec_steps": len(cycles), "num_accepted_draft_tokens": sum(cycles), "num_draft_tokens": 99}
        if accepted is not None:
            counts |= {"per_step_accepted": accepted, "per_step_drafted": proposed, "num_draft_tokens": sum(proposed)}
        data["usage"]["completion_tokens"] = sum(cycles) + len(cycles) if tokens is None else tokens

    file = changed(VLLM, tmp_path / "a.jsonl", contradict)
    with pytest.raises(ExchangeError, match=rf"a\.jsonl line 1: {complaint}"):
        bring_in(tmp_path / "imported", "vllm", registry.converter("vllm"), file)


@pytest.mark.parametrize("levels", [65, 900, 100_000])
def test_deep_nesting_is_refused(tmp_path: Path, levels: int) -> None:
    file = tmp_path / "deep.jsonl"
    file.write_text(VLLM.read_text() + '{"id": ' + "[" * levels + "]" * levels + "}\n")
    with pytest.raises(ExchangeError, match=r"deep\.jsonl line \d+: "):
        bring_in(tmp_path / "imported", "vllm", registry.converter("vllm"), file)
    assert not list((tmp_path / "imported").glob("*"))


def test_a_wrong_baseline_leaves_nothing(tmp_path: Path) -> None:
    wrong = changed(BASELINE, tmp_path / "b.jsonl", lambda data: data["choices"][0].update(new_tokens=[10 ** 400]), -1)
    for file, baseline in ((SPEC_BENCH, wrong), (wrong, BASELINE)):
        with pytest.raises(ExchangeError, match="out of bounds"):
            bring_in(tmp_path / "imported", "spec_bench", registry.converter("spec_bench"), file, baseline)
        assert not list((tmp_path / "imported").glob("*"))


def test_an_import_named_as_a_baseline_keeps_its_numbers(tmp_path: Path) -> None:
    root, converter = tmp_path / "imported", registry.converter("spec_bench")
    other = changed(SPEC_BENCH, tmp_path / "other.jsonl", lambda data: data.update(question_id=data["question_id"]))
    other.write_text(other.read_text() + "\n")
    first = bring_in(root, "spec_bench", converter, SPEC_BENCH, BASELINE)
    assert first.baseline is not None and first.cells[0].speedup is not None
    bring_in(root, "spec_bench", converter, other, SPEC_BENCH)
    [again] = [one for folder in imported_folders(root) if (one := folder.about()).key == first.key]
    assert again == first
