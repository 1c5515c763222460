"""Methods with files and steps of their own through the command: DropMatch, ARC-Decode with
pruning, AutoJudge."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bench.config.compose import composer
from bench.config.paths import TINY
from methods.engine.fingerprints import fingerprint
from methods.rules.classifiers import Classifier
from models.train.options import PairOptions
from models.train.rules.calibrate import run as calibrate
from tests.helpers.summaries import written

pytestmark = pytest.mark.slow


def test_arc_runs_with_its_constants_and_pruning(command, pair_folder, tmp_path):
    """Calibrated on the small target; twice, so that the second time nothing is left to measure."""
    file, target = tmp_path / "arc.json", pair_folder / "target"
    words = f"pair.target={target} prompts=3 positions=8 max_new_tokens=10 engine.device=cpu"
    with composer(name="calibrate") as hydra:
        config = hydra.point([*words.split(), f"out={file}", f"work={tmp_path / 'work'}"]).config
    calibrate(config)
    first = json.loads(file.read_text())
    [lines] = (tmp_path / "work").glob("*.jsonl")
    measured = lines.read_text()
    torn = "".join(measured.splitlines(keepends=True)[:-1]) + '{"id": "torn'
    lines.write_text(torn)  # killed while writing
    calibrate(config)
    assert lines.read_text() == measured
    assert {**first, "provenance": None} == {**json.loads(file.read_text()), "provenance": None}
    assert 8 < first["provenance"]["n"] <= 24 and first["fingerprint"] == fingerprint(str(target))
    words = "task=mini_gsm decoding.temperature=1 drafter=model_greedy rule=arc"
    words += f" rule.constants={file}"
    pruning = "pruning=branches pruning.score=accum_prob pruning.epsilon=0.3"
    loose = written(command(words, pruning, "rule.theta=-1000").cell)
    assert loose.failed == 0 and 0 < loose.pruned_share < 1 and loose.relaxed_share > 0
    if max(bucket["tau"] for bucket in first["buckets"]) >= 0.6932:
        assert loose.events["vacuous_bound"] > 0
    strict = written(command(words, "rule.theta=1", store=tmp_path / "other").cell)
    assert strict.tau < loose.tau and strict.pruned_share is None


def test_autojudge_alone_and_with_dropmatch(command, pair_folder, tmp_path):
    file = tmp_path / "classifier.json"
    prints = {part: fingerprint(str(pair_folder / part)) for part in ("target", "draft")}
    file.write_text(
        Classifier(
            kind="autojudge",
            target="t",
            fingerprint=prints["target"],
            draft="d",
            draft_fingerprint=prints["draft"],
            features="both",
            mean=[0.0] * 64,
            scale=[1.0] * 64,
            coef=[0.0] * 64,
            intercept=0.0,
        ).model_dump_json()
    )
    common = f"pair.autojudge={file} task=mini_gsm draft.length=3"
    alone, strict, both = (
        command(common, words, store=tmp_path / str(place)).cell
        for place, words in enumerate(
            (
                "method=autojudge rule.threshold=0.6",
                "method=autojudge rule.threshold=0.4",
                "method=autojudge_dropmatch rule.second.threshold=0.4",
            )
        )
    )
    # nothing matters there; the last cycle of an answer may be cut short by its end
    assert all(n == 3 for sample in alone.samples() for n in sample.accepted[:-1])
    assert written(strict).relaxed_share == 0.0  # P = 0.5 of all tokens is above the threshold
    assert written(both).tau >= written(strict).tau


def test_the_shipped_files_name_the_shipped_models():
    """by a path within the project: where they were made is nobody's business, and no other machine
    has that folder."""
    arc, judge = (json.loads((TINY / name).read_text()) for name in ("arc.json", "autojudge.json"))
    assert arc["target"] == judge["target"] == "models/tiny/target"
    assert judge["draft"] == "models/tiny/draft"
    sources = str(TINY / "target"), "org/name", "/elsewhere/x"
    names = [PairOptions.provenance_name(SimpleNamespace(source=source)) for source in sources]
    assert names == ["models/tiny/target", *sources[1:]]
