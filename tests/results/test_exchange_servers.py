"""Acceptance per request as vLLM and AIPerf write it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.exchange import registry
from results.exchange.acceptance import acceptance_of, histogram_of, trimmed
from results.exchange.base import Exchanged, ExchangeError, Failed
from results.exchange.imported import ImportedFolder, bring_in
from results.exchange.measured import by_turn, cycles_of_turns, measured_sources
from tests.helpers.exchanged_stores import TEXTS, two_turn_store

FILES = Path(__file__).parent / "exchange_files"
ACCEPTED = st.lists(st.integers(0, 8), max_size=30)


def objects(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def imported(name: str, root: Path, file: Path | None = None):
    return bring_in(root, name, registry.converter(name), file or FILES / f"{name}.jsonl")


def test_a_vllm_file_by_hand(tmp_path: Path) -> None:
    """The documentation's example has 43 cycles and 10 accepted tokens; the second request 4 and 6. The first took
    85 + 915 ms for 54 tokens; the second has no clock. A request of two sequences has no metrics."""
    about = imported("vllm", tmp_path)
    [cell] = about.cells
    assert (cell.n, cell.failed, cell.cycles) == (2, 1, 47)
    assert cell.tau == pytest.approx(1 + 16 / 47) and cell.accept_len == pytest.approx(16 / 47)
    assert cell.tokens_per_s == pytest.approx(54) and cell.speedup is None
    first, second = ImportedFolder(tmp_path, about.key).answers()
    assert first.histogram == [39, 1, 0, 3] and first.accepted is None and first.texts == ["Paris."]
    assert second.accepted == [3, 0, 2, 1] and second.committed == [4, 1, 3, 2] and second.texts is None
    assert about.failed == {"metrics.speculative_decoding is missing or null": 1}


def test_an_aiperf_file_by_hand(tmp_path: Path) -> None:
    """128 cycles with 22 + 38 + 48 + 40 + 135 = 283 accepted tokens, and 4 with 6; 412 + 11 tokens in 2.25 s."""
    about = imported("aiperf", tmp_path)
    [cell] = about.cells
    assert (cell.n, cell.failed, cell.cycles) == (2, 2, 132) and cell.tau == pytest.approx(1 + 289 / 132)
    assert cell.tokens_per_s == pytest.approx(423 / 2.25)
    assert set(about.failed) == {"error: Request was cancelled after 0.000 seconds",
                                 "benchmark_phase is warmup, not profiling"}


@pytest.mark.parametrize("name", ["vllm", "aiperf"])
def test_a_file_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    about = imported(name, tmp_path)
    [written] = registry.converter(name).write([ImportedFolder(tmp_path, about.key).source()], tmp_path / "out")
    assert objects(written.path) == objects(FILES / f"{name}.jsonl")[:2]


@pytest.mark.parametrize("name", ["vllm", "aiperf"])
def test_a_store_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    """One request a turn: accept lengths and tokens of each, and a draft length of 4 in every cycle."""
    store = two_turn_store(tmp_path / "store")
    [source] = [one for one in measured_sources(store, "all") if "mars" in one.name]
    [written] = registry.converter(name).write([source], tmp_path / "out")
    about = imported(name, tmp_path / "imported", written.path)
    held = list(ImportedFolder(tmp_path / "imported", about.key).answers())
    assert [answer.id for answer in held] == [f"p{i}#{turn}" for i in range(3) for turn in range(2)]
    samples = store.cell("tiny-mars-made_up").good_samples()
    for sample, (first, second) in zip(samples, list(pairwise(held))[::2], strict=True):
        assert [first.accepted, second.accepted] == [sample.accepted[:2], sample.accepted[2:]]
        assert [first.tokens, second.tokens] == [[count] for count in sample.turn_tokens]
        assert first.proposed == [4, 4] and first.draft_length == 4
        assert name == "aiperf" or [first.texts, second.texts] == [[text] for text in TEXTS]
    assert about.cells[0].accept_len == pytest.approx(4 / 3)


def test_from_one_format_to_another(tmp_path: Path) -> None:
    """Spec-Bench's accept lengths count the bonus, servers' do not; its file does not say how much was proposed."""
    spec_bench = registry.converter("spec_bench")
    about = bring_in(tmp_path, "spec_bench", spec_bench, FILES / "spec_bench.jsonl")
    source = ImportedFolder(tmp_path, about.key).source()
    [written] = registry.converter("vllm").write([source], tmp_path / "out")
    assert (written.answers, written.left_out) == (0, 4)
    about = imported("vllm", tmp_path)
    [written] = registry.converter("aiperf").write([ImportedFolder(tmp_path, about.key).source()], tmp_path / "other")
    first, second = (line["spec_decode_acceptance"] for line in objects(written.path))
    assert first["acceptance_histogram"] == {"0": 39, "1": 1, "3": 3} and second["per_step_accepted"] == [3, 0, 2, 1]


@given(ACCEPTED, st.integers(0, 4))
def test_counters_follow_from_the_cycles(accepted: list[int], spare: int) -> None:
    proposed = [count + spare for count in accepted]
    held = acceptance_of(Exchanged("x", accepted=accepted, proposed=proposed, drafted=sum(proposed), draft_length=12))
    assert held is not None
    counters, histogram = held
    assert trimmed(histogram) == trimmed(histogram_of(accepted)) and sum(histogram) == len(accepted)
    assert counters["num_accepted_draft_tokens"] == sum(accepted)
    assert counters["mean_acceptance_length"] == pytest.approx(
        sum(count + 1 for count in accepted) / len(accepted) if accepted else 1)


@given(st.lists(st.lists(st.integers(1, 5), max_size=6), min_size=1, max_size=4))
def test_cycles_are_divided_among_turns(turns: list[list[int]]) -> None:
    """The tokens of a turn are one from the prefill and those of its cycles."""
    tokens, committed = [1 + sum(turn) for turn in turns], [count for turn in turns for count in turn]
    assert cycles_of_turns(tokens, committed) == [len(turn) for turn in turns]
    whole = Exchanged("x", texts=[""] * len(turns), tokens=tokens, steps=list(map(len, turns)), committed=committed,
                      accepted=[count - 1 for count in committed])
    assert [one.committed for one in by_turn(whole)] == turns


def wrong(name: str, **counts) -> bytes:
    """The second request of a fixture with other counts."""
    data = objects(FILES / f"{name}.jsonl")[1]
    place = data["metrics"]["speculative_decoding"] if name == "vllm" else data["spec_decode_acceptance"]
    place.update(counts)
    return json.dumps(data).encode()


BOTH = [({"num_spec_steps": 5}, "num_spec_steps: 5, but acceptance_histogram gives 4"),
        ({"num_accepted_draft_tokens": 7}, "num_accepted_draft_tokens: 7, but acceptance_histogram gives 6"),
        ({"num_draft_tokens": 5}, "num_draft_tokens: 5, fewer than the 6 accepted ones"),
        ({"per_step_accepted": [3, 0, 2, 2]}, "per_step_accepted: its counts are not those"),
        ({"per_step_drafted": [3, 3, 3]}, "per_step_drafted: 9 together, but num_draft_tokens is 12"),
        ({"num_draft_tokens": "many"}, "num_draft_tokens: Input should be a valid integer"),
        ({"mean_acceptance_length": float("inf")}, "mean_acceptance_length: Input should be a finite number")]


@pytest.mark.parametrize(("name", "counts", "complaint"), [
    *((name, *case) for name in ("vllm", "aiperf") for case in BOTH),
    ("vllm", {"acceptance_histogram": {"0": 4}}, "metrics.speculative_decoding.acceptance_histogram: Input should be"),
    ("aiperf", {"acceptance_histogram": [4]}, "spec_decode_acceptance.acceptance_histogram: Input should be"),
    ("aiperf", {"acceptance_histogram": {"x": 4}}, "acceptance_histogram.x: must be a number of tokens"),
    ("aiperf", {"acceptance_histogram": {"9" * 12: 4}}, "acceptance_histogram.999999999999: must be a number"),
])
def test_contradictions_are_named(name: str, counts: dict, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_bytes(wrong(name, **counts))
    with pytest.raises(ExchangeError) as refusal:
        list(registry.converter(name).read(file))
    assert str(refusal.value).startswith(f"{file} line 1: ") and complaint in str(refusal.value)


@pytest.mark.parametrize(("metric", "complaint"), [
    ({"value": "fast", "unit": "ms"}, "metrics.request_latency.value: must be a non-negative number, not fast"),
    ({"value": 3, "unit": "miles"}, "metrics.request_latency.unit: 'miles' is not a unit of time")])
def test_a_wrong_clock_is_named(metric: dict, complaint: str, tmp_path: Path) -> None:
    data = objects(FILES / "aiperf.jsonl")[0]
    data["metrics"]["request_latency"] = metric
    (tmp_path / "file.jsonl").write_text(json.dumps(data))
    with pytest.raises(ExchangeError, match=complaint):
        list(registry.converter("aiperf").read(tmp_path / "file.jsonl"))


def test_a_request_without_acceptance_is_counted() -> None:
    records = list(registry.converter("aiperf").read(FILES / "aiperf.jsonl"))
    assert [isinstance(record, Failed) for record in records] == [False, False, True, True]
