"""Reports that compare meanings: without a model one clear line, with one the numbers of the very texts."""

from __future__ import annotations

import pandas as pd
import pytest

from bench.rehearsal.sentence_models import save_model
from bench.reports.meanings import rejections


@pytest.fixture
def models(tmp_path) -> list[str]:
    encoder = save_model(tmp_path / "encoder")
    nli = save_model(tmp_path / "nli", ("entailment", "neutral", "contradiction"))
    return [f"similarity.sentence={encoder}", f"similarity.bertscore={encoder}", f"similarity.entailment={nli}"]


@pytest.mark.slow
def test_matrices_of_the_heads(command, models, tmp_path, monkeypatch):
    words = ["report=dropmatch_fig3", "n=2", "decoding.max_new_tokens=6", *models]
    result = command(*words)
    assert result.status == 0, result.err
    assert (tmp_path / "out" / "report" / "dropmatch_fig3.png").stat().st_size > 5000
    records = {cell.key: record for cell in result.cells if (record := cell.record("agreement"))}
    assert len(records) == 10
    for name, record in records.items():
        cosine, entails = record["values"]["sentence"], record["values"]["entailment"]
        assert len(cosine) == len(entails) == 5 and cosine[name] == pytest.approx([1, 1])
        assert all(cosine[other] == pytest.approx(records[other]["values"]["sentence"][name]) for other in cosine)
    monkeypatch.setattr("bench.reports.meanings.Models.score", lambda *_: pytest.fail("compared again"))
    assert command(*words).status == 0


def test_rejections_stand_where_their_token_was_not_emitted():
    """Two cycles: the first keeps 7 and draws 8 after rejecting 5 and 6; the second rejects 9 at once, and 4 beyond the
    end of the answer."""
    rows = [(0, 1, "strict", 7), (0, 2, "rejected", 5), (0, 2, "rejected", 6), (0, 2, "drawn", 8),
            (0, 3, "unreached", 1), (1, 1, "rejected", 9), (1, 1, "drawn", 2),
            (2, 1, "rejected", 4), (2, 1, "drawn", 3)]
    frame = pd.DataFrame(rows, columns=["cycle", "depth", "clause", "token"])
    assert rejections(frame, 4) == {2: [5, 6], 3: [9]}
    assert rejections(frame, 9) == {2: [5, 6], 3: [9], 4: [4]}
