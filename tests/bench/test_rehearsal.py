"""`rehearse=true`: reports run whole with tiny random models in the hub's formats."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.config.paths import CONF
from methods.engine.loading import load_model
from tests.helpers.ci import needs_similarity
from tests.helpers.rehearsal.models import HUB, checkpoint, of_model
from tests.helpers.rehearsal.stand_ins import NOTE, TITLE, stand_ins
from tests.helpers.rehearsal.whole import rehearsed

REPORTS = sorted(
    path.stem
    for paper in ("mars", "fsd", "dropmatch", "arc")
    for path in (CONF / "report").glob(f"{paper}_*.yaml")
)
SMALL = {"mars_fig5", "fsd_fig3", "arc_table8"}
"""Of MARS, FSD and ARC-Decode: `make test` rehearses these, and by the command one of DropMatch."""
BY_COMMAND = "dropmatch_table10"
OF_MEANINGS = {"arc_fig2", "dropmatch_fig3"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.mark.parametrize(
    "name",
    [
        "meta-llama/Llama-3.1-8B-Instruct",
        "Qwen/Qwen2.5-7B-Instruct",
        "Qwen/Qwen3-32B",
        "Qwen/Qwen3-235B-A22B",
        "google/gemma-2-27b-it",
        "lmsys/vicuna-13b-v1.3",
    ],
)
def test_each_family_loads_from_files_of_its_form(hub, name):
    template = None if of_model(name)[0] != "vicuna" else CONF / "chat" / "vicuna.jinja"
    model = load_model(str(checkpoint(hub, name)), chat_template=template)
    text = "Two boxes hold 12 pens.\n 안녕"
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    assert model.tokenizer.decode(ids).strip() == text
    asked = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert "Hi" in asked and asked.rstrip("\n").endswith(
        ("assistant", "model", "ASSISTANT:", "<|end_header_id|>")
    )


def test_gemma_has_no_system_role(hub):
    model = load_model(str(checkpoint(hub, "google/gemma-2-2b-it")))
    with pytest.raises(Exception, match="System role not supported"):
        model.tokenizer.apply_chat_template(
            [{"role": "system", "content": "Be brief."}], tokenize=False
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-ins and cells, which the processes of a test run share."""
    root = tmp_path_factory.getbasetemp()
    return (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "rehearsal"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                pytest.mark.slow if name in SMALL else pytest.mark.rehearsal,
                *([needs_similarity] if name in OF_MEANINGS else []),
            ],
        )
        for name in REPORTS
    ],
)
def test_a_report_of_a_paper_runs_whole(name: str, shared: Path, tmp_path: Path) -> None:
    with stand_ins(shared) as hydra:
        places = [f"output.dir={tmp_path}", f"store.dir={shared / 'store'}"]
        outcome = rehearsed(name, hydra, ["scale=paper", *places])
    assert outcome.points and not outcome.missing, outcome.line(name)


def test_what_is_missing_is_said(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = "meta-llama/Llama-3.3-70B-Instruct"
    monkeypatch.delitem(HUB["models"], model)
    with stand_ins(shared / "without") as hydra:
        outcome = rehearsed(BY_COMMAND, hydra, ["scale=paper", f"output.dir={tmp_path}"])
    line = outcome.line(BY_COMMAND)
    assert line.startswith(f"{BY_COMMAND}: FAILED: {model}: a rehearsal does not know it")


@pytest.mark.slow
def test_the_command_runs_a_report_whole_and_says_what_it_is(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [f"report={BY_COMMAND}", "scale=paper", "rehearse=true", f"output.dir={out}"]
    assert main(words) == 0
    note, line = (out / "rehearsal.txt").read_text().splitlines()
    assert note == NOTE and line.startswith(f"{BY_COMMAND}: complete; 3 points, ")
    report = out / BY_COMMAND / "report"
    for file in (f"{BY_COMMAND}_paper.md", "index.html"):
        assert TITLE in (report / file).read_text()
    rows = list(csv.DictReader((report / f"{BY_COMMAND}_paper.csv").open()))
    filled = [row["value"] for row in rows if row["value_name"] in ("judge_score", "tau")]
    assert filled and all(filled)


def test_a_store_of_real_results_is_refused(command, capsys, tmp_path):
    real = tmp_path / "real"
    command("method=ar n=1 timed=0", store=real / "store")
    before = {file: file.read_bytes() for file in real.rglob("*") if file.is_file()}
    for line in (f"output.dir={real}", f"store.dir={real / 'store'}"):
        capsys.readouterr()
        words = [line] if line.startswith("output") else [line, f"output.dir={tmp_path / 'own'}"]
        assert main(["report=arc_table8", "scale=paper", "rehearse=true", *words]) == 2
        assert "holds real results" in capsys.readouterr().err
    assert before == {file: file.read_bytes() for file in real.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task=mini_gsm", "rehearse=true"], "rehearses reports"),
        (
            ["report=arc_table8", "scale=paper", "rehearse=true", "dry_run=true"],
            "give one of the two",
        ),
        (["report=arc_table8", "rehearse=true"], "add scale=paper"),
        (["report=arc_table8", "scale=paper", "rehearse=true", "tracker=wandb"], "tracker=wandb"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_in_one_line(capsys, tmp_path, words, message):
    assert main([*words, f"output.dir={tmp_path / 'own'}"]) == 2
    assert message in "".join(capsys.readouterr())
