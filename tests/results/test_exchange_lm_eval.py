"""A store's cells as lm-eval's results and samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.exchange import lm_eval
from results.exchange.base import measured_sources
from tests.helpers.exchanged_stores import TEXTS, exact_match, two_turn_store


def test_samples_and_results_of_a_cell(tmp_path: Path) -> None:
    """Scores 0, 1, 0: mean 1/3 and standard error √(1/3) ÷ √3 = 1/3."""
    store = two_turn_store(tmp_path / "store")
    source = [one for one in measured_sources(store, "all", exact_match) if "mars" in one.name]
    samples, results = lm_eval.write(source, tmp_path / "out")
    assert samples.path.parent.name == "tiny-mars-made_up" and samples.answers == 3
    scores = json.loads(results.path.read_text())["results"]["made_up"]
    assert scores["exact_match,none"] == pytest.approx(1 / 3)
    assert scores["exact_match_stderr,none"] == pytest.approx(1 / 3)
    lines = [json.loads(line) for line in samples.path.read_text().splitlines()]
    assert [(line["doc_id"], line["doc"]["id"], line["exact_match"]) for line in lines] == [
        (0, "p0", 0), (1, "p1", 1), (2, "p2", 0)]
    assert lines[0]["resps"] == [["\n\n".join(TEXTS)]] and lines[0]["filtered_resps"] == ["42"]
    assert "/home/user" not in results.path.read_text()
