"""report=NAME and +sweep=NAME: run what is missing, render, and continue after a failure."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from bench.config.compose import Composer
from bench.reports.plan import Plan, plan_of
from bench.run.models import ModelPool
from results.reports.spec import parse_report
from results.store.traces import TraceFolder


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
def own_conf(tmp_path: Path) -> Path:
    """A user's own folder of YAMLs with a table."""
    folder = tmp_path / "conf"
    (folder / "report").mkdir(parents=True)
    write_report(folder, TABLE)
    return folder


def test_report_runs_what_is_missing(
    command, own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = f"-cd {own_conf} report=own_table"
    sps = command("method=sps n=2 timed=2")
    key, samples = sps.cell.key, sps.cell.samples()
    result = command(report, "n=2")
    assert len(result.cells) == 4, "n on the command line wins over the report's"
    assert "missing: 3 of 4 cells" in result.out
    assert result.store.cell(key).samples() == samples, "what was there is used as it is"
    out = tmp_path / "out" / "report"
    files = {f"own_table.{ending}" for ending in ("md", "tex", "csv", "html")}
    assert {file.name for file in out.iterdir()} == {"index.html", *files}
    values = {
        row["Method"]: float(row["value"])
        for row in csv.DictReader((out / "own_table.csv").open())
        if row["value_name"] == "tau" and row["Task"] == "gsm"
    }
    assert values["AR"] == 1.0 < values["SpS"]
    monkeypatch.setattr(ModelPool, "load", lambda pool, cell: pytest.fail("a model was loaded"))
    for prompts in (2, 1):  # no more than are there
        assert "missing:" not in command(report, f"n={prompts}").out


@pytest.mark.parametrize(("trace", "is_traced"), [("auto", True), ("false", False)])
def test_a_report_traces_what_it_decodes(
    command, own_conf: Path, trace: str, is_traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page shows the answers; one that was decoded before is not decoded again for a trace."""
    before = command("method=sps n=2 timed=2").cell
    assert not TraceFolder(before).exists(), "without a report, only trace=true"
    words = f"-cd {own_conf} report=own_table n=2 trace={trace}"
    result = command(words)
    assert not result.err
    for cell in result.store.cells():
        is_new = cell.key not in (before.key, before.config()["baseline"])
        ids = {sample.id for sample in cell.good_samples()} if is_traced and is_new else set()
        assert TraceFolder(cell).covered() == ids, cell.key
    monkeypatch.setattr(ModelPool, "load", lambda pool, cell: pytest.fail("a model was loaded"))
    command(words)


@pytest.mark.slow
def test_reports_are_kept_from_one_store_and_one_session(
    command, own_conf: Path, tmp_path: Path
) -> None:
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
        assert len(cell.timed()) == len(times) == 2
        assert "fresh=true" in cell.environment()["argv"], "where it was timed is on record"
        assert [row.own.decode_s for row in cell.timed()] != [row.own.decode_s for row in times]


def test_answers_come_first_and_times_later(command, own_conf: Path, tmp_path: Path) -> None:
    lengths = [entry(f"K = {length}", f"draft.length={length}") for length in (2, 3)]
    best = entry("best lossless", "method=sps", variants=lengths)
    frontier = [length["label"] for length in lengths]
    choice = {"axes": ["Setting"], "lossless": "best lossless", "frontier": frontier}
    changes = {"name": "chosen", "axes": {"Rule": [ALONE, best]}, "rows": ["Rule"], "columns": []}
    changes |= {"base": ["n=2", "task=mini_chat"], "values": ["tau"], "choice": choice}
    write_report(own_conf, TABLE | changes)
    words = f"-cd {own_conf} report=chosen decoding.max_new_tokens=6"
    table = tmp_path / "out" / "report" / "chosen.md"
    answers = command(words, "timed=0")
    assert "not drawn: report=chosen" in answers.out and not table.exists()
    cells = answers.store.cells()
    assert len(cells) > 2 and not any(cell.timed() for cell in cells)
    command(words)
    assert table.exists()


def test_report_goes_on_when_cells_fail(
    command, own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ModelPool.load

    def load(pool, cell):
        if cell.drafter.name == "model":
            raise MemoryError("the draft does not fit")
        return real(pool, cell)

    monkeypatch.setattr(ModelPool, "load", load)
    result = command(f"-cd {own_conf} report=own_table n=2", status=1)
    assert len(result.err.splitlines()) == 2 and "the draft does not fit" in result.err
    table = (tmp_path / "out" / "report" / "own_table.md").read_text()
    assert "failed" in table and "1.00" in table, "the baseline's numbers stand beside the failure"


def test_report_with_a_point_that_this_machine_refuses(
    command, own_conf: Path, tmp_path: Path
) -> None:
    """A pair without a draft is no failure."""
    words, table = f"-cd {own_conf} report=own_table n=2", tmp_path / "out/report/own_table.md"
    assert "pair.draft" in command(words, "pair.draft=models/nowhere", status=1).err
    assert "missing" in table.read_text()
    assert "left out: pair.draft" in command(words, "pair.draft=null").out
    assert "missing" in table.read_text()


def test_sweep_draws_its_plot(command, tmp_path: Path) -> None:
    words = "+sweep=mars_theta n=2 decoding.max_new_tokens=8"
    result = command(words, "rule.theta=0.5,0.9 task=mini_gsm method=mars")
    assert len(result.cells) == 4
    out = tmp_path / "out" / "sweep" / "mars_theta"
    assert (out / "sweep_mars_theta.png").stat().st_size > 5000
    assert words in (out / "index.html").read_text()
    assert "theta = 0.5" in (out / "sweep_mars_theta.csv").read_text()
    assert {cell.config()["rule"]["theta"] for cell in result.cells} == {0.5, 0.9}


@pytest.mark.usefixtures("offline")
def test_several_pairs_of_a_paper_in_one_table(command, hydra: Composer) -> None:
    chosen = command("report=arc_table1 pairs=[llama31_8b] n=80 dry_run=true pair=local", status=2)
    assert chosen.err.startswith("error: pair=local pairs=[llama31_8b]: give one of the two")

    def plan(report: str, words: str) -> Plan:
        return plan_of(parse_report(hydra.section("report", report)), hydra, words.split())

    size = "n=80 engine.device=cpu"
    both = plan("arc_table6", f"pairs=[vicuna_13b,llama31_8b] {size}")
    with pytest.raises(ValueError, match="mars_table2: does not have pair=llama31_8b; it has tiny"):
        plan("mars_table2", "pair=llama31_8b")
    assert both.spec.name == "arc_table6_vicuna_13b_llama31_8b"
    assert {cell.pair.name for cell in both.cells.values()} == {"vicuna_13b", "llama31_8b"}
    assert plan("arc_table6", f"pair=vicuna_13b {size}").cells.items() <= both.cells.items()


def test_constants_are_measured_before_a_report_that_needs_them(
    command, own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.usefixtures("offline")
def test_a_dry_run_names_what_is_made_first_and_what_only_its_user_can_bring(command) -> None:
    """Neither is an error; an option that is wrong is."""
    for report, pair, foretold in (
        ("arc_table5", "llama31_8b", "task=oasst1 min_new_tokens=32 max_new_tokens=256"),
        ("dropmatch_fig5", "llama31_8b_70b", "task=gsm8k_dropmatch task.split=train prompts=4000"),
        ("dropmatch_fig3", "llama31_8b_70b", "needs a model of meaning: similarity.sentence="),
    ):
        result = command(f"report={report} pair={pair} dry_run=true")
        assert foretold in result.out, result.out + result.err
    wrong = command("report=arc_table5 pair=llama31_8b draft.length=-1 dry_run=true", status=2)
    assert "draft.length" in wrong.err


def test_every_report_is_listed_with_its_points(command, own_conf: Path) -> None:
    listed = command(f"-cd {own_conf} report=list").out.splitlines()
    rows = [[cell.strip() for cell in line.split("│")] for line in listed if line.startswith("│")]
    lines = {row[1]: row for row in rows}
    assert (
        "MARS, Figure 5" in " ".join(lines["mars_fig5"]) and "its name, every" in lines["mars_fig5"]
    )
    assert "its name, every, all" in lines["own_table"] and lines["own_table"][-2] == "4"


@pytest.mark.slow
def test_relaxed_rows_have_a_verdict_beside_the_best_lossless_one(command, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    rows = [{"id": str(i), "prompt": f"Tom has {i} apples and"} for i in range(4)]
    file.write_text("\n".join(map(json.dumps, rows)))
    words = "decoding.max_new_tokens=8 timed=4 report.axes.K.values=[2]"
    command(f"report=workload task.path={file}", words)
    verdicts = {
        row["Method"]: row["verdict"]
        for row in csv.DictReader((tmp_path / "out" / "report" / "workload.csv").open())
        if row["value_name"] == "equal_d_speed"
    }
    assert verdicts["SpS"] == verdicts["PLD"] == "", "lossless: there is nothing to decide"
    assert verdicts["MARS, θ = 0.9"] and verdicts["MARS, θ = 0.95"]


def test_without_prompts_it_says_what_to_bring(command) -> None:
    assert "task.path" in command("report=workload dry_run=true scale=paper").out
    [line] = command("report=workload", status=2).err.splitlines()
    assert "task.path" in line


def test_it_says_when_a_file_passes_the_chat_template_by(
    command, tmp_path: Path, pair_folder: Path, caplog
) -> None:
    """Only a target with a template, and only texts: messages go through it."""
    target = tmp_path / "target"
    shutil.copytree(pair_folder / "target", target)
    template = target / "chat_template.jinja"
    file = tmp_path / "prompts.jsonl"

    def says(**row: object) -> bool:
        file.write_text(json.dumps({"id": "1", **row}))
        caplog.clear()
        command(f"method=ar task=prompts task.path={file} pair.target={target} n=1")
        return "without the chat template" in caplog.text

    assert says(prompt="Tom has")
    assert not says(messages=[{"role": "user", "content": "Tom has"}])
    template.unlink()
    assert not says(prompt="Tom has")


@pytest.mark.usefixtures("offline")
def test_the_papers_models_of_meaning(command) -> None:
    """At their scale, unless the command names others."""
    named = "model sentence-transformers/all-mpnet-base-v2: of meaning (similarity.sentence)"
    for report in ("arc_fig2", "dropmatch_fig3"):
        words = f"report={report} scale=paper dry_run=true"
        result = command(words)
        assert named in result.out and "needs a model of meaning" not in result.out
        own = command(f"{words} similarity.entailment=org/own").out
        assert named not in own and "model org/own: of meaning (similarity.entailment)" in own
