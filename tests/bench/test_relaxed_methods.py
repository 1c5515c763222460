"""Methods with files and steps of their own through the command: DropMatch, ARC-Decode with pruning, AutoJudge."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.config.cell import Cell
from bench.config.compose import composer
from bench.config.paths import PROJECT
from bench.training.commands.calibrate import run as calibrate
from bench.training.options import PairOptions
from methods.engine.fingerprints import fingerprint
from methods.rules._files import Classifier
from tests.helpers.summaries import written

pytestmark = pytest.mark.slow

SHORT = ["task=mini_gsm", "decoding.temperature=1"]


@pytest.fixture
def constants(pair_folder: Path, tmp_path: Path) -> Path:
    """Calibrated on the small target; twice, so that the second time nothing is left to measure."""
    overrides = [f"pair.target={pair_folder / 'target'}", "prompts=3", "positions=8", "max_new_tokens=10",
                 f"out={tmp_path / 'arc.json'}", f"work={tmp_path / 'work'}", "engine.device=cpu"]
    with composer(name="calibrate") as hydra:
        config = hydra.point(overrides).config
    calibrate(config)
    first = json.loads((tmp_path / "arc.json").read_text())
    [lines] = (tmp_path / "work").glob("*.jsonl")
    written = lines.read_text()
    lines.write_text("".join(written.splitlines(keepends=True)[:-1]) + '{"id": "torn')  # killed while writing
    calibrate(config)
    assert lines.read_text() == written
    again = json.loads((tmp_path / "arc.json").read_text())
    assert {**first, "provenance": None} == {**again, "provenance": None}
    assert 8 < first["provenance"]["n"] <= 24 and first["fingerprint"] == fingerprint(str(pair_folder / "target"))
    assert (tmp_path / "arc.png").stat().st_size > 5000
    return tmp_path / "arc.json"


def test_arc_runs_with_its_constants_and_pruning(command, constants: Path, capsys) -> None:
    found = command(*SHORT, "drafter=model_greedy", "rule=arc", f"rule.constants={constants}", "pruning=branches",
                    "pruning.score=accum_prob", "pruning.epsilon=0.3", "rule.theta=-1000")
    assert found.status == 0, found.err
    summary = written(found.cell)
    assert summary.failed == 0 and 0 < summary.pruned_share < 1 and summary.relaxed_share > 0
    if max(b["tau"] for b in json.loads(constants.read_text())["buckets"]) >= 0.6932:
        assert summary.events["vacuous_bound"] > 0
    again = command(*SHORT, "drafter=model_greedy", "rule=arc", f"rule.constants={constants}", "rule.theta=1",
                    store=constants.parent / "other")
    assert written(again.cell).tau < summary.tau and written(again.cell).pruned_share is None


@pytest.mark.parametrize("options", [
    ["method=dropmatch"], ["method=dropmatch", "rule.variant=naive", "quality_batch=3"],
    ["method=coarse", "rule.similarity=0.3"]], ids=str)
def test_rules_that_need_no_file(command, options: list[str]) -> None:
    found = command(*SHORT, *options)
    assert found.status == 0 and written(found.cell).failed == 0 and written(found.cell).cycles > 0, found.err


def test_results_of_dropmatch_do_not_depend_on_the_batch(command, tmp_path: Path) -> None:
    runs = [command(*SHORT, "method=dropmatch", f"quality_batch={batch}", store=tmp_path / str(batch))
            for batch in (1, 3)]
    one, other = ([sample.output_ids for sample in run.cell.samples()] for run in runs)
    assert one == other


@pytest.fixture
def classifier(pair_folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "classifier.json"
    prints = {part: fingerprint(str(pair_folder / part)) for part in ("target", "draft")}
    file.write_text(Classifier(
        kind="autojudge", target="t", fingerprint=prints["target"], draft="d", draft_fingerprint=prints["draft"],
        features="both", mean=[0.0] * 64, scale=[1.0] * 64, coef=[0.0] * 64, intercept=0.0).model_dump_json())
    return file


def test_autojudge_alone_and_with_dropmatch(command, classifier: Path, tmp_path: Path) -> None:
    alone, strict, both = (command(*options, f"pair.autojudge={classifier}", "task=mini_gsm", "draft.length=3",
                                   store=tmp_path / str(i))
                           for i, options in enumerate([["method=autojudge", "rule.threshold=0.6"],
                                                        ["method=autojudge", "rule.threshold=0.4"],
                                                        ["method=autojudge_dropmatch", "rule.second.threshold=0.4"]]))
    assert alone.status == strict.status == both.status == 0, both.err
    # nothing matters there; the last cycle of an answer may be cut short by its end
    assert all(n == 3 for sample in alone.cell.samples() for n in sample.accepted[:-1])
    assert written(strict.cell).relaxed_share == 0.0  # P = 0.5 of all tokens is above the threshold
    assert written(both.cell).tau >= written(strict.cell).tau


def test_the_shipped_files_name_the_shipped_models() -> None:
    """by a path within the project: where they were made is nobody's business, and no other machine has that folder."""
    pair = PROJECT / "models" / "tiny"
    arc, judge = (json.loads((pair / name).read_text()) for name in ("arc.json", "autojudge.json"))
    for found, part, key in [(arc, "target", "fingerprint"), (judge, "target", "fingerprint"),
                             (judge, "draft", "draft_fingerprint")]:
        assert found[part] == f"models/tiny/{part}" and found[key] == fingerprint(str(pair / part))
    assert PairOptions.provenance_name(SimpleNamespace(source=str(pair / "target"))) == "models/tiny/target"
    for elsewhere in ("org/name", "/elsewhere/x"):
        assert PairOptions.provenance_name(SimpleNamespace(source=elsewhere)) == elsewhere


def test_missing_files_are_said_before_anything_runs(command, tmp_path: Path) -> None:
    for options, message in [(["rule=arc"], "make them with `python -m bench.train calibrate"),
                             (["rule=autojudge"], "train one with `python -m bench.train judge"),
                             (["rule=arc", f"rule.constants={tmp_path / 'none.json'}"], "rule.constants"),
                             (["pruning=branches"], "use drafter=model_greedy"),
                             (["drafter=prompt_lookup", "pruning=branches"], "prompt_lookup has none")]:
        found = command(*SHORT, *options)
        assert found.status == 2 and message in found.err and found.err.count("\n") == 1


def test_what_a_file_says_is_part_of_a_points_identity(pair: list[str], classifier: Path) -> None:
    copy = classifier.with_name("copy.json")
    copy.write_text(classifier.read_text())
    other = classifier.with_name("other.json")
    other.write_text(classifier.read_text() + "\n")
    with composer() as hydra:
        def name(*overrides: str) -> str:
            return Cell.from_config(hydra.point([*pair, *overrides]).config).name

        for rule, key in (("autojudge", "rule.classifier"), ("either", "rule.second.classifier")):
            assert name(f"rule={rule}", f"{key}={classifier}") == name(f"rule={rule}", f"{key}={copy}")
            assert name(f"rule={rule}", f"{key}={classifier}") != name(f"rule={rule}", f"{key}={other}")
        pruned = name("drafter=model_greedy", "pruning=branches")
        assert len({pruned, name("drafter=model_greedy"), name("drafter=model_greedy", "pruning=branches",
                                                               "pruning.epsilon=0.1")}) == 3
