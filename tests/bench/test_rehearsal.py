"""`rehearse=true`: reports run whole with tiny random models in the hub's formats."""

import csv
import os
from pathlib import Path

import pytest
import torch

from bench.__main__ import main
from bench.config.cell import Cell
from bench.config.paths import CONF
from bench.run.models import ModelPool
from methods.decode import Limits, Request
from methods.engine.loading import load_model
from methods.engine.source import ModelError
from tasks.base import TaskError
from tests.helpers.ci import needs_similarity
from tests.helpers.rehearsal.models import HUB, VOCAB, checkpoint
from tests.helpers.rehearsal.rows import write_rows
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
WITH_A_HEAD = ["pair=llama33_70b", "method=eagle3", "task=mini_gsm", "engine.device=cpu"]
MIRRORED = ("alpaca", "alpaca_eagle", "livecodebench_v5", "mbpp", "spec_bench")
"""Rows that are not shipped, one task for each form: a file, Parquet without a subset, several
files, Parquet of a subset, a URL."""


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    with stand_ins(tmp_path_factory.mktemp("rehearsal")) as composer:
        yield composer


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
def test_each_family_loads_from_files_of_its_form(tmp_path, name):
    """Where one of its files of weights is missing, it is named."""
    template = CONF / "chat" / "vicuna.jinja" if "vicuna" in name else None
    folder = checkpoint(tmp_path, name)
    model = load_model(str(folder), chat_template=template)
    text = "Two boxes hold 12 pens.\n 안녕"
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    assert model.tokenizer.decode(ids).strip() == text
    _, shard, *_ = sorted(folder.glob("*-of-*"))
    shard.unlink()
    with pytest.raises((ModelError, OSError), match=shard.name):
        load_model(str(folder), chat_template=template)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
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
def test_a_report_of_a_paper_runs_whole(name, shared, tmp_path):
    with stand_ins(shared) as hydra:
        places = [f"output.dir={tmp_path}", f"store.dir={shared / 'store'}"]
        outcome = rehearsed(name, hydra, ["scale=paper", *places])
    assert outcome.points and not outcome.missing, outcome.line(name)


def test_what_is_missing_is_said(shared, tmp_path, monkeypatch):
    model = "meta-llama/Llama-3.3-70B-Instruct"
    monkeypatch.delitem(HUB["models"], model)
    with stand_ins(shared / "without") as hydra:
        outcome = rehearsed(BY_COMMAND, hydra, ["scale=paper", f"output.dir={tmp_path}"])
    line = outcome.line(BY_COMMAND)
    assert line.startswith(f"{BY_COMMAND}: FAILED: {model}: a rehearsal does not know it")


@pytest.mark.slow
def test_the_command_runs_a_report_whole_and_says_what_it_is(tmp_path):
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


def test_a_store_of_real_results_is_refused(store, capsys, tmp_path):
    def content() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in store.root.rglob("*") if file.is_file()}

    before, own = content(), f"output.dir={tmp_path / 'own'} store.dir={store.root}"
    for words in (f"output.dir={tmp_path}", own):
        assert main(["report=arc_table8", "scale=paper", "rehearse=true", *words.split()]) == 2
        assert "holds real results" in capsys.readouterr().err
    assert content() == before


@pytest.mark.parametrize("task", MIRRORED)
def test_rows_are_read_as_those_of_the_hub(rehearsal, task, tmp_path):
    """Through `datasets`, from a mirror in the repository's layout; without the file or the subset
    that the task names there is one line."""
    words = [f"task={task}", "pair=tiny", "task.ids=null", "engine.device=cpu"]
    composed = rehearsal.point(words)
    options = composed.config["task"]
    assert options["path"] is None and Path(options["hub"]).is_dir()
    file = write_rows(tmp_path, task)
    by_path = rehearsal.point([*words, f"task.path={file}"]).cell.load_task()
    prompts = composed.cell.load_task().prompts(2, 0)
    assert len(prompts) == 2 and prompts == by_path.prompts(2, 0)
    key, wrong = ("files", "none.json") if options["files"] is not None else ("subset", "none")
    options[key] = wrong
    with pytest.raises(TaskError, match="cannot be loaded from the hub"):
        Cell.parsed(composed.config).load_task().prompts(2, 0)


def test_a_head_that_is_narrower_than_its_target(tmp_path, rehearsal):
    """EAGLE-3 of 70B: own size, own embedding. Without its embedding it is refused."""
    cell = rehearsal.point(WITH_A_HEAD).cell
    loaded = ModelPool().load(cell)
    module = loaded.method.model.model
    assert module.embed_tokens.weight.shape == (VOCAB, 24) and module.fc.weight.shape == (
        24,
        3 * 32,
    )
    requests = [Request([5, 6, 7], "a"), Request([8, 9], "b")]
    answers = loaded.generate(requests, Limits(4, frozenset()))
    assert [len(answer.output_ids) for answer in answers] == [4, 4]
    folder = checkpoint(tmp_path, "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B")
    weights = torch.load(folder / "pytorch_model.bin")
    del weights["embed_tokens.weight"]
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="embed"):
        ModelPool().load(rehearsal.point([*WITH_A_HEAD, f"pair.eagle3={folder}"]).cell)
