"""lm-eval's results with samples: read as lm-eval writes them, and written so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.exchange import registry
from results.exchange.base import ExchangeError
from results.exchange.imported import ImportedFolder, bring_in
from results.exchange.measured import measured_sources
from results.metrics import intervals
from tests.helpers.exchanged_stores import TEXTS, two_turn_store

FILES = Path(__file__).parent / "exchange_files"
DATE = "2026-01-02T03-04-05.678901"
SAMPLES, RESULTS = FILES / f"samples_gsm8k_{DATE}.jsonl", FILES / f"results_{DATE}.json"
FORMAT = registry.converter("lm_eval")


@pytest.mark.parametrize("file", [SAMPLES, RESULTS], ids=["samples", "results"])
def test_scores_by_filter_with_wilson_intervals(file: Path, tmp_path: Path) -> None:
    about = bring_in(tmp_path, "lm_eval", FORMAT, file)
    scores = {cell.task: cell.scores["exact_match"] for cell in about.cells}
    assert scores == {"gsm8k, strict-match": [0.75, *(intervals.proportion_interval(3, 4) or ()), 4],
                      "gsm8k, flexible-extract": [1.0, *(intervals.proportion_interval(4, 4) or ()), 4]}
    assert all(cell.n == 4 and cell.tau is None and cell.speedup is None for cell in about.cells)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    about = bring_in(tmp_path, "lm_eval", FORMAT, SAMPLES)
    [written] = FORMAT.write([ImportedFolder(tmp_path, about.key).source()], tmp_path / "out")
    assert written.path.read_text() == SAMPLES.read_text()


def test_files_of_lm_evals_own_writer(tmp_path: Path) -> None:
    """What lm-eval's tracker saves is read; the samples are as its evaluator makes them."""
    from lm_eval.loggers import EvaluationTracker

    tracker = EvaluationTracker(output_path=str(tmp_path / "out"))
    tracker.general_config_tracker.model_name_sanitized = "leeway"
    samples = [{"doc_id": i, "doc": {"q": i}, "target": 7, "arguments": [("ask", {"until": ["."]})], "resps": [["7"]],
                "filtered_resps": ["7"], "filter": "none", "metrics": ["exact_match", "likelihood"],
                "doc_hash": "a", "prompt_hash": "b", "target_hash": "c", "exact_match": float(i),
                "likelihood": [1.5, 3]}
               for i in range(2)]
    tracker.save_results_aggregated({"results": {"own_task": {"alias": "own_task"}}}, {"own_task": samples})
    tracker.save_results_samples("own_task", samples)
    [results] = (tmp_path / "out").rglob("results_*.json")
    [cell] = bring_in(tmp_path / "imported", "lm_eval", FORMAT, results).cells
    assert cell.n == 2 and list(cell.scores) == ["exact_match"] and cell.scores["exact_match"][0] == 0.5
    [answer, _] = ImportedFolder(tmp_path / "imported", next(
        path.name for path in (tmp_path / "imported").iterdir())).answers()
    assert answer.texts == ["7"] and answer.category == "own_task, none"


def test_a_store_comes_back_as_it_was(tmp_path: Path) -> None:
    """Scores 0, 1, 0: mean 1/3 and standard error √(1/3) ÷ √3 = 1/3."""
    store = two_turn_store(tmp_path / "store")
    source = [one for one in measured_sources(store, "all") if "mars" in one.name]
    samples, results = FORMAT.write(source, tmp_path / "out")
    assert samples.path.parent.name == "tiny-mars-made_up" and samples.answers == 3
    scores = json.loads(results.path.read_text())["results"]["made_up"]
    assert scores["exact_match,none"] == pytest.approx(1 / 3)
    assert scores["exact_match_stderr,none"] == pytest.approx(1 / 3)
    about = bring_in(tmp_path / "imported", "lm_eval", FORMAT, results.path)
    assert about.cells[0].scores["exact_match"][0] == pytest.approx(1 / 3)
    lines = [json.loads(line) for line in samples.path.read_text().splitlines()]
    assert [line["doc"]["id"] for line in lines] == ["p0", "p1", "p2"]
    assert lines[0]["resps"] == [["\n\n".join(TEXTS)]] and lines[0]["filtered_resps"] == ["42"]
    assert "/home/user" not in results.path.read_text()


@pytest.mark.parametrize(("change", "complaint"), [
    ({"doc_id": "a"}, "line 1: doc_id: Input should be a valid integer"),
    ({"metrics": ["f1"]}, "line 1: f1: is listed in metrics and must be a number, not None"),
    ({"exact_match": "yes"}, "line 1: exact_match: is listed in metrics and must be a number, not yes")])
def test_a_wrong_line_is_named(change: dict, complaint: str, tmp_path: Path) -> None:
    line = json.loads(SAMPLES.read_text().splitlines()[0])
    file = tmp_path / "samples_a_b.jsonl"
    file.write_text(json.dumps(line | change))
    with pytest.raises(ExchangeError, match=complaint):
        list(FORMAT.read(file))


@pytest.mark.parametrize(("text", "complaint"), [
    ("{", "is not JSON"), ("[]", "results: is missing"), ('{"results": {}}', "run lm-eval with --log_samples")])
def test_a_wrong_results_file(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "results_2026.json"
    file.write_text(text)
    with pytest.raises(ExchangeError, match=complaint):
        list(FORMAT.read(file))
