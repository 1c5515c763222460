"""report=NAME and +sweep=NAME: run what is missing, render, and continue after a failure."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from bench.reports.plan import Plan, plan_of
from results.reports.spec import parse_report
from results.store.traces import TraceFolder
from tests.helpers.tables import rows


def entry(label: str, *overrides: str, **more) -> dict:
    """An entry of a report's axis."""
    return {"label": label, "overrides": list(overrides), **more}


ALONE = entry("AR", "method=ar", baseline=True)
TASKS = {"Task": [entry("gsm", "task=mini_gsm"), entry("chat", "task=mini_chat")]}
TABLE = {
    "name": "own_table",
    "title": "Own table",
    "kind": "table",
    "base": ["n=50"],
    "axes": TASKS | {"Method": [ALONE, entry("SpS", "method=sps")]},
    "rows": ["Method"],
    "columns": ["Task"],
    "values": ["speedup", "tau"],
}


def write_report(folder: Path, spec: dict) -> None:
    (folder / "report" / f"{spec['name']}.yaml").write_text(json.dumps(spec))  # JSON is YAML


@pytest.fixture
def own_conf(tmp_path) -> Path:
    """A user's own folder of YAMLs with a table."""
    folder = tmp_path / "conf"
    (folder / "report").mkdir(parents=True)
    write_report(folder, TABLE)
    return folder


@pytest.mark.parametrize(("trace", "is_traced"), [("auto", True), ("false", False)])
def test_report_runs_and_traces_what_is_missing(
    command, own_conf, tmp_path, trace, is_traced, no_models
):
    """What was decoded before is used as it is, and not decoded again for a trace."""
    before = command("method=sps n=2 timed=2").cell
    samples = before.samples()
    assert not TraceFolder(before).exists(), "without a report, only trace=true"
    report = f"-cd {own_conf} report=own_table trace={trace}"
    result = command(report, "n=2")
    assert not result.err and "missing: 3 of 4 cells" in result.out
    assert len(result.cells) == 4, "n on the command line wins over the report's"
    assert result.store.cell(before.key).samples() == samples
    for cell in result.store.cells():
        is_new = cell.key not in (before.key, before.config()["baseline"])
        ids = {sample.id for sample in cell.good_samples()} if is_traced and is_new else set()
        assert TraceFolder(cell).covered() == ids, cell.key
    out = tmp_path / "out" / "report"
    files = {f"own_table.{ending}" for ending in ("md", "tex", "csv", "html")}
    assert {file.name for file in out.iterdir()} == {"index.html", *files}
    values = {
        row["Method"]: float(row["value"])
        for row in csv.DictReader((out / "own_table.csv").open())
        if row["value_name"] == "tau" and row["Task"] == "gsm"
    }
    assert values["AR"] == 1.0 < values["SpS"]
    no_models()
    for prompts in (2, 1):  # no more than are there
        assert "missing:" not in command(report, f"n={prompts}").out


@pytest.mark.slow
def test_reports_are_kept_from_one_store_and_one_session(command, own_conf, tmp_path):
    archive = tmp_path / "kept"
    words = f"-cd {own_conf} report=own_table n=2 decoding.max_new_tokens=6"
    first = command(words, f"output.archive={archive}")
    endings = ("md", "csv", "tex", "environment.json")
    assert {"TABLES.md", *(f"own_table.{ending}" for ending in endings)} <= {
        file.name for file in archive.iterdir()
    }
    others = [archive / name for name in ("own_figure.csv", "mars_table1.md", "README.md")]
    for file in others:
        file.write_text("mine")
    record = json.loads((archive / "own_table.environment.json").read_text())
    cells = {cell.key: (cell.samples(), cell.timed()) for cell in first.store.cells()}
    assert [machine["cells"] for machine in record["machines"]] == [len(cells)], "one machine"
    for sessions in record["clock"].values():
        assert len(sessions) == 1 and min(sessions.values()) > 0
    rows = list(csv.DictReader((archive / "own_table.csv").open()))
    assert rows and {row["cell"] for row in rows} <= cells.keys()
    again = command(words, f"output.archive={archive} fresh=true")
    assert {file.read_text() for file in others} == {"mine"}, "what the list does not name stays"
    for cell in again.cells:
        samples, times = cells[cell.key]
        assert cell.samples() == samples, "samples do not depend on a clock"
        assert len(cell.timed()) == len(times) == 2 and cell.timed() != times


def test_report_with_a_point_that_this_machine_refuses(command, own_conf, tmp_path):
    """A pair without a draft is no failure; where cells fail, the others' numbers are shown."""
    words, table = f"-cd {own_conf} report=own_table n=2", tmp_path / "out/report/own_table.md"
    assert "pair.draft" in command(words, "pair.draft=models/nowhere", status=1).err
    assert "missing" in table.read_text() and "1.00" in table.read_text()
    assert "left out: pair.draft" in command(words, "pair.draft=null").out
    assert "missing" in table.read_text()


@pytest.mark.usefixtures("offline")
def test_several_pairs_of_a_paper_in_one_table(hydra):
    def plan(report: str, words: str) -> Plan:
        return plan_of(parse_report(hydra.section("report", report)), hydra, words.split())

    size = "n=80 engine.device=cpu"
    both = plan("arc_table6", f"pairs=[vicuna_13b,llama31_8b] {size}")
    assert both.spec.name == "arc_table6_vicuna_13b_llama31_8b"
    assert {cell.pair.name for cell in both.cells.values()} == {"vicuna_13b", "llama31_8b"}
    assert plan("arc_table6", f"pair=vicuna_13b {size}").cells.items() <= both.cells.items()


def test_constants_are_measured_before_a_report_that_needs_them(
    command, own_conf, tmp_path, monkeypatch
):
    """Once for all its points, with the report's pair; the next run finds the file."""
    (own_conf / "pair").mkdir()
    (own_conf / "pair" / "own.yaml").write_text("defaults: [tiny, _self_]\nname: own\narc: null\n")
    write_report(
        own_conf, TABLE | {"axes": TASKS | {"Method": [ALONE, entry("ARC", "method=arc")]}}
    )
    words = f"-cd {own_conf} report=own_table pair=own n=1 decoding.max_new_tokens=4"
    step = r"python -m models.train calibrate .* pair=own .*\(for 2 cells, about .*steps=now"
    assert re.search(step, command(words, "dry_run=true").out)
    ran = []

    def calibrate(argv: tuple[str, ...]) -> int:
        ran.append(argv)
        out = next(word.removeprefix("out=") for word in argv if word.startswith("out="))
        shutil.copy("models/tiny/arc.json", out)
        return 0

    monkeypatch.setattr("bench.reports.steps.run_module", calibrate)
    asked = command(words, status=1)
    assert "steps=now first runs python -m models.train calibrate" in asked.out and not ran
    command(words, "steps=now")
    result = command(words)
    [[module, name, *overrides]] = ran
    assert (module, name) == ("models.train", "calibrate") and "pair=own" in overrides
    assert f"out={tmp_path / 'out' / 'calibration' / 'own.json'}" in overrides
    assert [cell.config()["rule"]["name"] for cell in result.cells].count("arc") == 2


MPNET = "model sentence-transformers/all-mpnet-base-v2: of meaning (similarity.sentence)"
FORETOLD = rows(f"""
report=arc_table5 pair=llama31_8b | task=oasst1 min_new_tokens=32 max_new_tokens=256
report=dropmatch_fig5 pair=llama31_8b_70b | task=gsm8k_dropmatch task.split=train prompts=4000
report=dropmatch_fig3 pair=llama31_8b_70b | needs a model of meaning: similarity.sentence=
report=arc_fig2 scale=paper | {MPNET}
report=dropmatch_fig3 scale=paper | {MPNET}
report=arc_fig2 scale=paper similarity.entailment=org/own | model org/own: of meaning (similarity.entailment)
report=workload scale=paper | task.path
pair=qwen3_8b method=pld | model Qwen/Qwen3-8B: about 16.4 GB; hub not reachable | unknown: pair.target=Qwen/Qwen3-8B
report=arc_table1 pair=llama31_8b n=80 | about 850.0 MB | GPU h, right to a factor of two
""")


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("row", FORETOLD)
def test_a_dry_run_names_what_is_made_first_and_what_its_user_brings(command, row):
    """None of it is an error; at the papers' scale models of meaning are theirs, unless the command
    names others."""
    words, *foretold = row
    ended = command(words, "dry_run=true")
    assert not ended.err and all(said in ended.out for said in foretold)
    assert (MPNET in ended.out) == (MPNET in foretold)


def test_every_report_is_listed_with_its_points(command, own_conf):
    listed = command(f"-cd {own_conf} report=list").out.splitlines()
    rows = [[cell.strip() for cell in line.split("│")] for line in listed if line.startswith("│")]
    lines = {row[1]: row for row in rows}
    assert (
        "MARS, Figure 5" in " ".join(lines["mars_fig5"]) and "its name, every" in lines["mars_fig5"]
    )
    assert "its name, every, all" in lines["own_table"] and lines["own_table"][-2] == "4"
