"""report=NAME and +sweep=NAME: run what is missing, render, and continue after a failure."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from bench.config.compose import Composer
from bench.reports.plan import plan_of
from bench.run.models import ModelPool
from results.reports.spec import parse_report
from results.store.traces import TraceFolder

FIGURE = {"kind": "sweep", "x": "theta", "left": "accuracy", "right": "speedup", "panels": ["Task"]}
AXES = {
    "Task": [
        {"label": "gsm", "overrides": ["task=mini_gsm"]},
        {"label": "chat", "overrides": ["task=mini_chat"]},
    ]
}


@pytest.fixture
def own_conf(tmp_path: Path) -> Path:
    """A user's own folder of YAMLs with a table and a figure."""
    folder = tmp_path / "conf"
    (folder / "report").mkdir(parents=True)
    methods = [
        {"label": "AR", "overrides": ["method=ar"], "baseline": True},
        {"label": "SpS", "overrides": ["method=sps"]},
    ]
    table = {
        "name": "own_table",
        "title": "Own table",
        "kind": "table",
        "base": ["n=50"],
        "axes": AXES | {"Method": methods},
        "rows": ["Method"],
        "columns": ["Task"],
        "values": ["speedup", "tau"],
    }
    figure = {
        "name": "own_figure",
        "title": "Own figure",
        "kind": "figure",
        "base": ["method=mars", "decoding.temperature=1"],
        "axes": AXES | {"theta": {"override": "rule.theta={}", "values": [0.5, 0.9]}},
        "figure": FIGURE,
    }
    for spec in (table, figure):
        (folder / "report" / f"{spec['name']}.yaml").write_text(yaml.safe_dump(spec))
    return folder


def test_report_runs_what_is_missing(
    command, own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["-cd", str(own_conf)]
    sps = command("method=sps", "n=2", "timed=2")
    assert sps.status == 0
    key, known = sps.cell.key, sps.cell.samples()
    result = command("report=own_table", "n=2", flags=flags)
    assert result.status == 0 and len(result.cells) == 4, (
        "n on the command line wins over the report's"
    )
    assert "missing: 3 of 4 cells" in result.out
    assert result.store.cell(key).samples() == known, "what was there is used as it is"
    out = tmp_path / "out" / "report"
    files = {file.name for file in out.iterdir()}
    assert files == {
        "index.html",
        "own_table.md",
        "own_table.tex",
        "own_table.csv",
        "own_table.html",
    }
    rows = list(csv.DictReader((out / "own_table.csv").open()))
    measured = {
        row["Method"]: row for row in rows if row["value_name"] == "tau" and row["Task"] == "gsm"
    }
    assert float(measured["AR"]["value"]) == 1.0 and float(measured["SpS"]["value"]) > 1
    monkeypatch.setattr(ModelPool, "load", lambda pool, cell: pytest.fail("a model was loaded"))
    again = command("report=own_table", "n=2", flags=flags)
    assert again.status == 0 and "missing:" not in again.out
    fewer = command("report=own_table", "n=1", flags=flags)
    assert fewer.status == 0 and "missing:" not in fewer.out, (
        "more prompts than asked for are there"
    )


@pytest.mark.parametrize(("trace", "is_traced"), [("auto", True), ("false", False)])
def test_a_report_traces_what_it_decodes(
    command, own_conf: Path, trace: str, is_traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page shows the answers; one that was decoded before is not decoded again for a trace."""
    flags, known = ["-cd", str(own_conf)], command("method=sps", "n=2", "timed=2").cell
    assert not TraceFolder(known).exists(), "without a report, only trace=true"
    result = command("report=own_table", "n=2", f"trace={trace}", flags=flags)
    assert result.status == 0 and not result.err
    for cell in result.store.cells():
        wanted = (
            {one.id for one in cell.good_samples()}
            if is_traced and cell.key not in (known.key, known.config()["baseline"])
            else set()
        )
        assert TraceFolder(cell).covered() == wanted, cell.key
    monkeypatch.setattr(ModelPool, "load", lambda pool, cell: pytest.fail("a model was loaded"))
    assert command("report=own_table", "n=2", f"trace={trace}", flags=flags).status == 0


@pytest.mark.slow
def test_reports_are_kept_from_one_store_and_one_session(
    command, own_conf: Path, tmp_path: Path
) -> None:
    kept, flags = tmp_path / "kept", ["-cd", str(own_conf)]
    given = ("report=own_table", "n=2", "decoding.max_new_tokens=6", f"output.archive={kept}")
    first = command(*given, flags=flags)
    assert first.status == 0, first.err
    files = {file.name for file in kept.iterdir()}
    others = ("own_figure.csv", "mars_table1.md", "README.md", "controls.environment.json")
    for name in others:
        (kept / name).write_text("mine")
    own = {f"own_table.{ending}" for ending in ("md", "csv", "tex", "environment.json")}
    assert own | {"TABLES.md"} <= files
    record = json.loads((kept / "own_table.environment.json").read_text())
    assert {machine["cells"] for machine in record["machines"]} == {
        len(list(first.store.cells()))
    }, "one machine"
    assert all(
        len(sessions) == 1 and min(sessions.values()) > 0 for sessions in record["clock"].values()
    )
    rows = list(csv.DictReader((kept / "own_table.csv").open()))
    assert {row["cell"] for row in rows} <= {cell.key for cell in first.store.cells()} and rows
    samples = {cell.key: (cell.samples(), cell.timed()) for cell in first.cells}
    again = command(*given, "fresh=true", flags=flags)
    assert again.status == 0
    assert all((kept / name).read_text() == "mine" for name in others), (
        "what the list does not name stays"
    )
    for cell in again.cells:
        before, times = samples[cell.key]
        assert cell.samples() == before, "samples do not depend on a clock"
        assert len(cell.timed()) == len(times) == 2
        assert not times or "fresh=true" in cell.environment()["argv"], (
            "where it was timed is on record"
        )
        assert [row.own.decode_s for row in cell.timed()] != [row.own.decode_s for row in times]


def test_answers_come_first_and_times_later(command, own_conf: Path, tmp_path: Path) -> None:
    lossless = {
        "label": "best lossless",
        "overrides": ["method=sps"],
        "variants": [
            {"label": f"K = {length}", "overrides": [f"draft.length={length}"]} for length in (2, 3)
        ],
    }
    alone = {"label": "AR", "overrides": ["method=ar"], "baseline": True}
    chosen = {
        "name": "chosen",
        "title": "Chosen",
        "kind": "table",
        "base": ["n=2", "task=mini_chat"],
        "rows": ["Rule"],
        "axes": {"Rule": [alone, lossless]},
        "values": ["tau"],
        "choice": {
            "axes": ["Setting"],
            "lossless": "best lossless",
            "frontier": ["K = 2", "K = 3"],
        },
    }
    (own_conf / "report" / "chosen.yaml").write_text(yaml.safe_dump(chosen))
    flags, table = ["-cd", str(own_conf)], tmp_path / "out" / "report" / "chosen.md"
    answers = command("report=chosen", "timed=0", "decoding.max_new_tokens=6", flags=flags)
    assert answers.status == 0 and "not drawn: report=chosen" in answers.out and not table.exists()
    assert len(answers.store.cells()) > 2 and not any(
        cell.timed() for cell in answers.store.cells()
    )
    assert (
        command("report=chosen", "decoding.max_new_tokens=6", flags=flags).status == 0
        and table.exists()
    )


def test_report_goes_on_when_cells_fail(
    command, own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ModelPool.load

    def load(pool, cell):
        if cell.drafter.name == "model":
            raise MemoryError("the draft does not fit")
        return real(pool, cell)

    monkeypatch.setattr(ModelPool, "load", load)
    result = command("report=own_table", "n=2", flags=["-cd", str(own_conf)])
    assert result.status == 1
    assert len(result.err.splitlines()) == 2 and "the draft does not fit" in result.err
    table = (tmp_path / "out" / "report" / "own_table.md").read_text()
    assert "failed" in table and "1.00" in table, "the baseline's numbers stand beside the failure"


def test_report_with_a_point_that_this_machine_refuses(
    command, own_conf: Path, tmp_path: Path
) -> None:
    result = command(
        "report=own_table", "n=2", "pair.draft=models/nowhere", flags=["-cd", str(own_conf)]
    )
    assert result.status == 1 and "pair.draft" in result.err
    assert "missing" in (tmp_path / "out" / "report" / "own_table.md").read_text()
    result = command("report=own_table", "n=2", "pair.draft=null", flags=["-cd", str(own_conf)])
    assert result.status == 0 and "left out: pair.draft" in result.out, (
        "a pair without a draft is no failure"
    )
    assert "missing" in (tmp_path / "out" / "report" / "own_table.md").read_text()


def test_sweep_draws_its_plot(command, tmp_path: Path) -> None:
    result = command(
        "+sweep=mars_theta",
        "n=2",
        "decoding.max_new_tokens=8",
        "rule.theta=0.5,0.9",
        "task=mini_gsm",
        "method=mars",
    )
    assert result.status == 0 and len(result.cells) == 4
    out = tmp_path / "out" / "sweep" / "mars_theta"
    assert (out / "sweep_mars_theta.png").stat().st_size > 5000
    assert "+sweep=mars_theta n=2 decoding.max_new_tokens=8" in (out / "index.html").read_text()
    assert "theta = 0.5" in (out / "sweep_mars_theta.csv").read_text()
    assert {cell.config()["rule"]["theta"] for cell in result.cells} == {0.5, 0.9}


@pytest.mark.usefixtures("offline")
def test_several_pairs_of_a_paper_in_one_table(command, hydra: Composer) -> None:
    chosen = command(
        "report=arc_table1", "pairs=[llama31_8b]", "n=80", "dry_run=true", "pair=local"
    )
    assert chosen.status == 2 and chosen.err.startswith(
        "error: pair=local pairs=[llama31_8b]: give one of the two"
    )
    spec = parse_report(hydra.section("report", "arc_table6"))
    plan = plan_of(spec, hydra, ["pairs=[vicuna_13b,llama31_8b]", "n=80", "engine.device=cpu"])
    single = plan_of(spec, hydra, ["pair=vicuna_13b", "n=80", "engine.device=cpu"])
    with pytest.raises(
        ValueError, match="report=mars_table2: does not have pair=llama31_8b; it has tiny"
    ):
        plan_of(parse_report(hydra.section("report", "mars_table2")), hydra, ["pair=llama31_8b"])
    assert plan.spec.name == "arc_table6_vicuna_13b_llama31_8b"
    assert {cell.pair.name for cell in plan.cells.values()} == {"vicuna_13b", "llama31_8b"}
    assert single.cells.items() <= plan.cells.items()


def test_constants_are_measured_before_a_report_that_needs_them(
    command, own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all its points, with the report's pair; the next run finds the file."""
    (own_conf / "pair").mkdir()
    (own_conf / "pair" / "own.yaml").write_text("defaults: [tiny, _self_]\nname: own\narc: null\n")
    table = yaml.safe_load((own_conf / "report" / "own_table.yaml").read_text())
    table["axes"]["Method"][1] = {"label": "ARC", "overrides": ["method=arc"]}
    (own_conf / "report" / "own_table.yaml").write_text(yaml.safe_dump(table))
    given = ["report=own_table", "pair=own", "n=1", "decoding.max_new_tokens=4"]
    foretold = command(*given, "dry_run=true", flags=["-cd", str(own_conf)])
    assert re.search(
        r"python -m models.train calibrate .* pair=own .*\(for 2 cells\)", foretold.out
    )
    ran = []

    def calibrate(argv: tuple[str, ...]) -> int:
        ran.append(argv)
        out = next(word.removeprefix("out=") for word in argv if word.startswith("out="))
        shutil.copy("models/tiny/arc.json", out)
        return 0

    monkeypatch.setattr("bench.reports.steps.run_module", calibrate)
    for _ in range(2):
        result = command(*given, flags=["-cd", str(own_conf)])
        assert result.status == 0, result.err
    [[module, name, *overrides]] = ran
    assert (module, name) == ("models.train", "calibrate") and "pair=own" in overrides
    assert f"out={tmp_path / 'out' / 'calibration' / 'own.json'}" in overrides
    assert len([cell for cell in result.cells if cell.config()["rule"]["name"] == "arc"]) == 2


@pytest.mark.usefixtures("offline")
def test_a_dry_run_names_what_is_made_first_and_what_only_its_user_can_bring(command) -> None:
    """Neither is an error; an option that is wrong is."""
    for report, pair, foretold in (
        ("arc_table5", "llama31_8b", "task=oasst1 min_new_tokens=32 max_new_tokens=256"),
        ("dropmatch_fig5", "llama31_8b_70b", "task=gsm8k_dropmatch task.split=train prompts=4000"),
        ("dropmatch_fig3", "llama31_8b_70b", "needs a model of meaning: similarity.sentence="),
    ):
        result = command(f"report={report}", f"pair={pair}", "dry_run=true")
        assert result.status == 0 and foretold in result.out, result.out + result.err
    wrong = command("report=arc_table5", "pair=llama31_8b", "draft.length=-1", "dry_run=true")
    assert wrong.status == 2 and "draft.length" in wrong.err


def test_every_report_is_listed_with_its_points(command, own_conf: Path) -> None:
    rows = {
        line.split("│")[1].strip(): line
        for line in command("report=list", flags=["-cd", str(own_conf)]).out.splitlines()
        if line.startswith("│")
    }
    assert "MARS, Figure 5" in rows["mars_fig5"] and "its name, every  " in rows["mars_fig5"]
    assert (
        "its name, every, all" in rows["own_table"]
        and rows["own_table"].split("│")[-2].strip() == "4"
    )


@pytest.mark.slow
def test_relaxed_rows_have_a_verdict_beside_the_best_lossless_one(command, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        "\n".join(json.dumps({"id": str(i), "prompt": f"Tom has {i} apples and"}) for i in range(4))
    )
    result = command(
        "report=workload",
        f"task.path={file}",
        "decoding.max_new_tokens=8",
        "timed=4",
        "report.axes.K.values=[2]",
    )
    assert result.status == 0, result.err
    rows = list(csv.DictReader((tmp_path / "out" / "report" / "workload.csv").open()))
    verdicts = {
        row["Method"]: row["verdict"] for row in rows if row["value_name"] == "equal_d_speed"
    }
    assert verdicts["SpS"] == verdicts["PLD"] == "", "lossless: there is nothing to decide"
    assert verdicts["MARS, θ = 0.9"] and verdicts["MARS, θ = 0.95"]


def test_without_prompts_it_says_what_to_bring(command) -> None:
    dry, run = (
        command("report=workload", *words) for words in (["dry_run=true", "scale=paper"], [])
    )
    assert dry.status == 0 and "task.path" in dry.out
    assert run.status == 2 and "task.path" in run.err and len(run.err.splitlines()) == 1
