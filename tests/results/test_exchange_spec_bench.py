"""Spec-Bench and EAGLE files: read and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.exchange import spec_bench
from results.exchange.base import ExchangeError, measured_sources
from results.metrics import intervals
from results.metrics.delta import clocked_interval
from results.store.sample import Timed, TimedRun
from tests.helpers.exchanged_stores import exact_match, two_turn_store

FILES = Path(__file__).parent / "exchange_files"
METHOD, BASELINE, EAGLE = FILES / "spec_bench.jsonl", FILES / "spec_bench_baseline.jsonl", FILES / "eagle.jsonl"


def choices(file: Path) -> dict[str, dict]:
    """Question -> its only choice."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["question_id"]: row["choices"][0] for row in rows}


def test_tasks_with_intervals() -> None:
    """By hand, from spec_bench.jsonl and spec_bench_baseline.jsonl (question 302 is an ERROR and left out): 81, 125 and
    301 have 20, 9 and 10 new tokens in 5, 1.5 and 4 s; the baseline 12, 9 and 5 in 10, 3 and 2 s. Pooled 39 ÷ 10.5
    against 26 ÷ 15 tokens/s, on prompts that both timed, so 15 ÷ 7. τ: overall (20 + 9 + 10) ÷ (5 + 3 + 2) = 3.9;
    mt_bench (81, 125) 29 ÷ 8; qa 5."""
    tasks, failed = spec_bench.read(METHOD, BASELINE)
    assert [task.task for task in tasks] == ["overall", "mt_bench", "qa"]
    overall, mt_bench, qa = tasks
    assert (overall.n, failed, overall.cycles, overall.paired) == (3, 1, 10, 3)
    assert (overall.tau, mt_bench.tau, qa.tau) == pytest.approx((3.9, 29 / 8, 5))
    assert (overall.tokens_per_s, overall.baseline_tokens_per_s) == pytest.approx((39 / 10.5, 26 / 15))
    assert overall.speedup == pytest.approx(15 / 7)
    assert overall.tau_ci95 == intervals.ratio_interval([20, 9, 10], [5, 3, 2])
    assert overall.speedup_ci95 == clocked_interval([20, 9, 10], [5, 1.5, 4], [12, 9, 5], [10, 3, 2])
    assert qa.tau_ci95 is None, "one prompt has no spread"


def test_a_file_of_eagle_counts_its_last_cycle() -> None:
    """`idxs` are 0-based: question 81 has (3 + 1) + (1 + 1) cycles for 18 tokens and, in its other answer, 4 for 12; 82
    has 5 for 10."""
    [overall], _ = spec_bench.read(EAGLE)
    assert (overall.n, overall.cycles) == (2, 15) and overall.tau == pytest.approx(40 / 15)
    assert overall.tau_ci95 == intervals.ratio_interval([30, 10], [10, 5]) and overall.speedup is None


def test_a_store_comes_back_as_it_was(tmp_path: Path) -> None:
    """Accept lengths, tokens and wall times of a store survive the trip through a file, and so does the baseline."""
    store = two_turn_store(tmp_path / "store")
    sources = [one for one in measured_sources(store, "timed", exact_match) if "mars" in one.name]
    own, base = spec_bench.write(sources, tmp_path / "out")
    assert (own.answers, base.answers) == (2, 2) and base.path.name == f"{own.path.stem}.baseline.jsonl"
    [overall], _ = spec_bench.read(own.path, base.path)
    cell = store.cell("tiny-mars-made_up")
    samples, clocks = {one.id: one for one in cell.good_samples()}, {one.id: one for one in cell.timed()}
    held = choices(own.path)
    assert set(held) == set(clocks) < set(samples)
    for name, choice in held.items():
        sample, clock = samples[name], clocks[name]
        assert choice["accept_lengths"] == sample.committed and choice["turns"] == sample.texts
        assert choice["new_tokens"] == sample.turn_tokens and choice["decoding_steps"] == [2, 1]
        assert choice["wall_time"] == [clock.own.prefill_s + clock.own.decode_s]
    for name, choice in choices(base.path).items():
        clock = clocks[name]
        assert sum(choice["new_tokens"]) == clock.baseline.tokens
        assert choice["wall_time"] == [clock.baseline.prefill_s + clock.baseline.decode_s]
    assert overall.tau == pytest.approx(sum(map(sum, (samples[i].committed for i in clocks))) / 6)
    every = [one for one in measured_sources(store, "all", exact_match) if "mars" in one.name]
    own, _ = spec_bench.write(every, tmp_path / "all")
    assert [("wall_time" in choice) for choice in choices(own.path).values()] == [True, True, False]


def test_a_timed_run_with_other_tokens_keeps_its_own_count(tmp_path: Path) -> None:
    """The wall time belongs to the tokens that were decoded then."""
    store = two_turn_store(tmp_path / "store")
    with store.cell("tiny-mars-made_up").lock() as cell:
        cell.append_timed(Timed("p0", TimedRun(5, 2, 0.5, 1.0), TimedRun(8, 6, 0.5, 2.0), "h", "b", "2026-01-01"))
    sources = [one for one in measured_sources(store, "timed", exact_match) if "mars" in one.name]
    own, _ = spec_bench.write(sources, tmp_path / "out")
    assert choices(own.path)["p0"]["new_tokens"] == [5] and choices(own.path)["p0"]["wall_time"] == [1.5]


GOOD = {"question_id": 1, "choices": [{"index": 0, "turns": ["a"], "new_tokens": [3], "wall_time": [1.0]}]}


def changed(**choice) -> dict:
    return {**GOOD, "choices": [{**GOOD["choices"][0], **choice}]}


@pytest.mark.parametrize(("line", "complaint"), [
    (b"{", "line 2: is not JSON"), (b"[]", "line 2: Input should be a valid dictionary"),
    (b"\xff\xfe", "line 2: is not JSON"), (b"[" * 100_000, "line 2: is not JSON .nested too deeply"),
    ({"choices": GOOD["choices"]}, "line 2: question_id: Field required"),
    ({"question_id": 1, "choices": []}, "line 2: choices: List should have at least 1 item"),
    (changed(new_tokens=["3"]), "line 2: choices.0.new_tokens.0: Input should be a valid integer"),
    (changed(new_tokens=[-1]), "line 2: choices.0.new_tokens.0: Input should be greater than or equal to 0"),
    (changed(wall_time=[float("nan")]), "line 2: choices.0.wall_time.0"),
    (changed(accept_lengths="many"), "line 2: choices.0.accept_lengths: Input should be a valid list"),
    (changed(new_tokens=[10 ** 400]), "line 2: choices.0.new_tokens.0: Input should be less than"),
    (GOOD, "line 2: repeats '1' of line 1: remove one of them")], ids=range(12))
def test_a_wrong_line_is_named(line, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    second = line if isinstance(line, bytes) else json.dumps(line).encode()
    file.write_bytes(json.dumps(GOOD).encode() + b"\n" + second)
    for own, baseline in ((file, None), (METHOD, file)):
        with pytest.raises(ExchangeError, match=complaint) as refusal:
            spec_bench.read(own, baseline)
        assert str(refusal.value).startswith(str(file)) and "\n" not in str(refusal.value)


def test_a_file_without_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    for text, reason in (("", "it is empty"), (METHOD.read_text().splitlines()[3], "1 × ERROR in place of a turn")):
        file.write_text(text)
        with pytest.raises(ExchangeError, match=reason):
            spec_bench.read(file)
