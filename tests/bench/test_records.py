"""Measurements that a report adds to its cells: how alike answers are, and the audit of
ARC-Decode's bound."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax

from bench.reports.audits import BOUNDS, audit_cells, coverage, divergences, rejections
from bench.reports.plan import COVERAGE
from bench.run.answer import context
from bench.run.models import ModelPool
from bench.run.requested_cell import RequestedCell
from methods.engine.fingerprints import fingerprint
from methods.engine.loading import load_model
from results.metrics.intervals import proportion_interval
from results.store.traces import EMITTED, TraceFolder
from tests.helpers.ci import needs_similarity
from tests.helpers.rehearsal.models import save_sentence_model


@needs_similarity
@pytest.mark.slow
def test_matrices_of_the_heads(command, tmp_path, monkeypatch):
    encoder = save_sentence_model(tmp_path / "encoder")
    nli = save_sentence_model(tmp_path / "nli", ("entailment", "neutral", "contradiction"))
    words = (
        "report=dropmatch_fig3 n=1 decoding.max_new_tokens=4",
        f"similarity.sentence={encoder} similarity.bertscore={encoder} similarity.entailment={nli}",
    )
    result = command(*words)
    assert (tmp_path / "out" / "report" / "dropmatch_fig3.png").stat().st_size > 5000
    records = {cell.key: record for cell in result.cells if (record := cell.record("agreement"))}
    assert len(records) == 10
    for name, record in records.items():
        cosine, entails = record["values"]["sentence"], record["values"]["entailment"]
        assert len(cosine) == len(entails) == 5 and cosine[name] == pytest.approx([1])
        for other, value in cosine.items():
            assert value == pytest.approx(records[other]["values"]["sentence"][name])
    monkeypatch.setattr(
        "bench.reports.audits.MeaningModels.score", lambda *_: pytest.fail("compared again")
    )
    command(*words)


def test_rejections_stand_where_their_token_was_not_emitted():
    """Two cycles: the first keeps 7 and draws 8 after rejecting 5 and 6; the second rejects 9 at
    once, and 4 beyond the end of the answer."""
    rows = [
        (0, 1, "strict", 7),
        (0, 2, "rejected", 5),
        (0, 2, "rejected", 6),
        (0, 2, "drawn", 8),
        (0, 3, "unreached", 1),
        (1, 1, "rejected", 9),
        (1, 1, "drawn", 2),
        (2, 1, "rejected", 4),
        (2, 1, "drawn", 3),
    ]
    frame = pd.DataFrame(rows, columns=["cycle", "depth", "clause", "token"])
    assert rejections(frame, 4) == {2: [5, 6], 3: [9]}
    assert rejections(frame, 9) == {2: [5, 6], 3: [9], 4: [4]}


def divergence(model, before: list[int], *tokens: int) -> float:
    """JS of what follows two tokens, by forwards of the whole text."""
    logits = [
        model(torch.tensor([[*before, token]])).logits[0, -1].double().numpy() for token in tokens
    ]
    union = sorted({place for z in logits for place in np.argsort(-z)[:128]})
    return jensenshannon(*(softmax(z[union]) for z in logits)) ** 2


@torch.inference_mode()
def test_the_audit_is_that_of_whole_texts(command, hydra, pair, pair_folder, tmp_path):
    """Under bounds that many tokens pass and some of them break."""
    file, folder = tmp_path / "arc.json", str(pair_folder / "target")
    bucket = {"c": 2e-3, "alpha_kappa": 2e-2, "tau": 5.0, "n": 9}
    bounds = {"inv_std": [1.0] * 32, "buckets": [bucket]}
    file.write_text(json.dumps({"target": "t", "fingerprint": fingerprint(folder), **bounds}))
    words = (
        f"drafter=model_greedy rule=arc rule.constants={file} rule.theta=0 task=mini_chat n=2 "
        "decoding.temperature=1 decoding.max_new_tokens=12 draft.length=4 timed=0"
    )
    result = command(words, "trace=true")
    cell = hydra.point([*pair, *words.split()]).cell
    assert cell.name == result.cell.key
    frame, samples = TraceFolder(result.cell).frame(BOUNDS), result.cell.samples()
    audited = divergences(cell, ModelPool(), samples, frame)
    target = load_model(folder)
    prompts = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    expected = []
    for sample in samples:
        start = 0
        for turn, tokens in enumerate(sample.turn_tokens):
            text = context(target, prompts[sample.id], sample.texts[:turn])
            text += sample.output_ids[start : start + 1]
            turns = frame[(frame["prompt"] == sample.id) & (frame["turn"] == turn)]
            rows = turns[turns["clause"].isin(EMITTED)].sort_values(["cycle", "depth"])
            for row in rows.head(tokens - 1).itertuples():
                if row.clause != "drawn" and row.token != row.top1:
                    apart = divergence(target.model, text, row.token, row.top1)
                    expected.append((apart, row.u_emb, row.u_logit))
                text = [*text, row.token]
            start += tokens
    assert len(audited) > 5
    np.testing.assert_allclose(audited, expected, rtol=1e-3, atol=1e-5)
    audit_cells([RequestedCell(cell, result.store)], ModelPool())
    record = result.cell.record(COVERAGE)
    assert record == json.loads(json.dumps({"asked": cell.n, **coverage(frame, audited)}))
    assert record["differing"] == len(audited)


def test_shares_by_hand():
    frame = pd.DataFrame(
        {"clause": ["strict"] * 5 + ["argmax"] + ["relaxed"] * 4 + ["rejected", "drawn"]}
    )
    shares = coverage(frame, [(0.1, 0.2, 0.3), (0.3, 0.2, 0.4), (0.0, 0.0, 0.0), (0.5, 0.6, 0.6)])
    assert (shares["accepted"], shares["differing"]) == (10, 4)
    assert shares["coverage"] == pytest.approx(0.9) and shares["coverage_differing"] == 0.75
    assert (shares["coverage_emb"], shares["coverage_logit"]) == (0.75, 1.0)
    assert shares["coverage_ci95"] == proportion_interval(9, 10)
    empty = coverage(frame.head(0), [])
    assert empty["coverage"] is None and empty["coverage_differing"] is None
