"""Spec-Bench and EAGLE files: read, written, and their speed scripts' arithmetic against a calculation by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.exchange import spec_bench
from results.exchange.base import Exchanged, ExchangeError, measured_sources
from results.exchange.imported import bring_in
from results.metrics import intervals
from results.metrics.delta import clocked_interval
from results.store.sample import Timed, TimedRun
from tests.helpers.exchanged_stores import exact_match, two_turn_store

FILES = Path(__file__).parent / "exchange_files"
METHOD, BASELINE, EAGLE = FILES / "spec_bench.jsonl", FILES / "spec_bench_baseline.jsonl", FILES / "eagle.jsonl"


def words(text: str) -> int:
    """A tokenizer of words that puts one token in front, as Llama's does."""
    return 1 + len(text.split())


def answers(file: Path) -> list[Exchanged]:
    return [answer for answer in spec_bench.read(file) if answer is not None]


def objects(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_cells_with_intervals(tmp_path: Path) -> None:
    """By hand, from spec_bench.jsonl and spec_bench_baseline.jsonl (question 302 is an ERROR and left out):

        question  new tokens ÷ wall time   words of the baseline's turns ÷ its wall time
        81        (12 + 8) ÷ (2 + 3) = 4   (7 + 3) ÷ (5 + 5) = 1
        125       9 ÷ 1.5 = 6              6 ÷ 3 = 2
        301       10 ÷ 4 = 2.5             4 ÷ 2 = 2

    Pooled 39 ÷ 10.5 tokens/s against (12 + 9 + 5) ÷ (10 + 3 + 2), so 15 ÷ 7. The speed script, overall: means 12.5 ÷ 3
    and 5 ÷ 3, ratio 2.5. mt_bench (81, 125): 5 and 1.5, ratio 10 ÷ 3. qa: 2.5 and 2. τ and mean accept length: overall
    (20 + 9 + 10) ÷ (5 + 3 + 2) = 3.9; mt_bench 29 ÷ 8; qa 5."""
    path, cells, failed = bring_in(tmp_path, METHOD, BASELINE, words)
    assert [cell.task for cell in cells] == ["overall", "mt_bench", "qa"]
    overall, mt_bench, qa = cells
    assert (overall.n, failed, overall.cycles, overall.paired) == (3, 1, 10, 3)
    assert (overall.tau, mt_bench.tau, qa.tau) == pytest.approx((3.9, 29 / 8, 5))
    assert (overall.tokens_per_s, overall.baseline_tokens_per_s) == pytest.approx((39 / 10.5, 26 / 15))
    assert overall.speedup == pytest.approx(15 / 7)
    assert overall.tau_ci95 == intervals.ratio_interval([20, 9, 10], [5, 3, 2])
    assert overall.speedup_ci95 == clocked_interval([20, 9, 10], [5, 1.5, 4], [12, 9, 5], [10, 3, 2])
    assert qa.tau_ci95 is None, "one prompt has no spread"
    assert overall.speed_script == pytest.approx({"tokens_per_s": 12.5 / 3, "baseline_tokens_per_s": 5 / 3,
                                                  "speedup": 2.5, "mean_accepted": 3.9})
    assert qa.speed_script["speedup"] == pytest.approx(1.25)
    assert mt_bench.speed_script["speedup"] == pytest.approx(10 / 3)
    assert mt_bench.speed_script["mean_accepted"] == pytest.approx(29 / 8)
    written = json.loads(path.read_text())
    assert written["cells"][0]["speedup"] == overall.speedup and written["baseline"] == str(BASELINE)


def test_a_file_of_eagle_counts_its_last_cycle(tmp_path: Path) -> None:
    """`idxs` are 0-based: question 81 has (3 + 1) + (1 + 1) cycles for 18 tokens and, in its other answer, 4 for 12; 82
    has 5 for 10."""
    _, [overall], _ = bring_in(tmp_path, EAGLE)
    assert (overall.n, overall.cycles) == (2, 15) and overall.tau == pytest.approx(40 / 15)
    assert overall.tau_ci95 == intervals.ratio_interval([30, 10], [10, 5])
    assert overall.speedup is None and overall.speed_script == {}


def test_a_store_comes_back_as_it_was(tmp_path: Path) -> None:
    """Accept lengths, tokens and wall times of a store survive the trip through a file, and so does the baseline."""
    store = two_turn_store(tmp_path / "store")
    sources = [one for one in measured_sources(store, "timed", exact_match) if "mars" in one.name]
    own, base = spec_bench.write(sources, tmp_path / "out")
    assert (own.answers, base.answers) == (2, 2) and base.path.name == f"{own.path.stem}.baseline.jsonl"
    _, [overall], _ = bring_in(tmp_path / "imported", own.path, base.path)
    cell = store.cell("tiny-mars-made_up")
    samples, clocks = {one.id: one for one in cell.good_samples()}, {one.id: one for one in cell.timed()}
    held = answers(own.path)
    assert {answer.id for answer in held} == set(clocks) < set(samples)
    for answer in held:
        sample, clock = samples[answer.id], clocks[answer.id]
        assert answer.committed == sample.committed and answer.texts == sample.texts
        assert answer.tokens == sample.turn_tokens and answer.steps == [2, 1]
        assert answer.seconds == [clock.own.prefill_s + clock.own.decode_s]
    for answer in answers(base.path):
        clock = clocks[answer.id]
        assert clock.baseline is not None
        assert sum(answer.tokens or []) == clock.baseline.tokens
        assert answer.seconds == [clock.baseline.prefill_s + clock.baseline.decode_s]
    assert overall.tau == pytest.approx(sum(map(sum, (samples[i].committed for i in clocks))) / 6)


def test_all_answers_on_request(tmp_path: Path) -> None:
    store = two_turn_store(tmp_path / "store")
    sources = [one for one in measured_sources(store, "all", exact_match) if "mars" in one.name]
    own, _ = spec_bench.write(sources, tmp_path / "out")
    untimed = [choice for line in objects(own.path) for choice in line["choices"] if "wall_time" not in choice]
    assert own.answers == 3 and len(untimed) == 1


def test_a_timed_run_with_other_tokens_keeps_its_own_count(tmp_path: Path) -> None:
    """The wall time belongs to the tokens that were decoded then."""
    store = two_turn_store(tmp_path / "store")
    cell = store.cell("tiny-mars-made_up")
    with cell.lock():
        cell.append_timed(Timed("p0", TimedRun(5, 2, 0.5, 1.0), TimedRun(8, 6, 0.5, 2.0), "h", "b", "2026-01-01"))
    [source] = [one for one in measured_sources(store, "timed", exact_match) if "mars" in one.name]
    [answer] = [one for one in source.answers() if one.id == "p0"]
    assert answer.tokens == [5] and answer.seconds == [1.5]


GOOD = {"question_id": 1, "choices": [{"index": 0, "turns": ["a"], "new_tokens": [3], "wall_time": [1.0]}]}


def changed(**choice) -> dict:
    return {**GOOD, "choices": [{**GOOD["choices"][0], **choice}]}


@pytest.mark.parametrize(("line", "complaint"), [
    (b'{"a": 1, "a": 2}', "line 2: is not JSON .the key 'a' is given twice"),
    (b"{", "line 2: is not JSON"), (b"[]", "line 2: is not a JSON object but list"),
    (b"\xff\xfe", "line 2: is not JSON"), (b"[" * 100_000, "line 2: is not JSON .nested too deeply"),
    ({"choices": GOOD["choices"]}, "line 2: question_id: Field required"),
    ({"question_id": 1, "choices": []}, "line 2: choices: List should have at least 1 item"),
    (changed(new_tokens=["3"]), "line 2: choices.0.new_tokens.0: Input should be a valid integer"),
    (changed(new_tokens=[True]), "line 2: choices.0.new_tokens.0: Input should be a valid integer"),
    (changed(new_tokens=[-1]), "line 2: choices.0.new_tokens.0: Input should be greater than or equal to 0"),
    (changed(wall_time=[float("nan")]), "line 2: choices.0.wall_time.0"),
    (changed(accept_lengths="many"), "line 2: choices.0.accept_lengths: Input should be a valid list"),
    ({**GOOD, "choices": GOOD["choices"] * 2}, "line 2: choices: Value error, index: two choices have the same"),
    (GOOD, "line 2: repeats '1' of line 1: remove one of them"),
    (changed(new_tokens=[10 ** 400]), "line 2: choices.0.new_tokens.0: Input should be less than"),
    (changed(new_tokens=[1 << 60]), "line 2: choices.0.new_tokens.0: Input should be less than"),
    (changed(accept_lengths=[5000, 1]), "line 2: choices.0.accept_lengths.0: Input should be less than or equal"),
    (changed(wall_time=[1e308]), "line 2: choices.0.wall_time.0: Input should be less than"),
    (changed(new_tokens=[7_000_000], decoding_steps=[2]), "line 2: new_tokens: 7000000 in 2 cycles"),
    (changed(accept_lengths=[2, 1, 1], decoding_steps=[1]), "line 2: accept_lengths: 3 cycles, but the answer has 1"),
    (changed(accept_lengths=[9] * 3), "line 2: accept_lengths: 27 tokens in all cycles, but the answer has 3"),
], ids=range(21))
def test_a_wrong_line_is_named_and_leaves_nothing(line, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    second = line if isinstance(line, bytes) else json.dumps(line).encode()
    file.write_bytes(json.dumps(GOOD).encode() + b"\n" + second)
    with pytest.raises(ExchangeError, match=complaint) as refusal:
        bring_in(tmp_path / "imported", file)
    assert str(refusal.value).startswith(str(file)) and "\n" not in str(refusal.value)
    for own, baseline in ((file, None), (METHOD, file)):
        with pytest.raises(ExchangeError, match=complaint):
            bring_in(tmp_path / "imported", own, baseline)
    assert not (tmp_path / "imported").exists()


def test_a_line_without_end_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.exchange.spec_bench.LINE_BYTES", 1 << 20)
    file = tmp_path / "file.jsonl"
    file.write_bytes(b'{"question_id": "' + b"x" * (2 << 20))
    with pytest.raises(ExchangeError, match="line 1: longer than 1 MiB"):
        list(spec_bench.read(file))


def test_a_file_without_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    for text, reason in (("", "it is empty"), (METHOD.read_text().splitlines()[3], "1 × ERROR in place of a turn")):
        file.write_text(text)
        with pytest.raises(ExchangeError, match=reason):
            bring_in(tmp_path / "imported", file)
    assert list(spec_bench.read(file)) == [None]
