"""`rehearse=true`: reports run whole with tiny random models in the hub's formats."""

from __future__ import annotations

import csv

import pytest

from bench.__main__ import main
from bench.config.paths import CONF
from bench.rehearsal.models import HUB, checkpoint
from bench.rehearsal.run import NOTE, TITLE
from methods.engine.loading import load_model


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
    template = None if HUB["models"][name] != "vicuna" else CONF / "chat" / "vicuna.jinja"
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


@pytest.mark.slow
def test_reports_are_run_whole_and_say_what_they_are(tmp_path):
    out = tmp_path / "out"
    status = main(
        [
            "report=[arc_table8,dropmatch_table10]",
            "scale=paper",
            "rehearse=true",
            "workers=1",
            f"output.dir={out}",
        ]
    )
    assert status == 0
    lines = (out / "rehearsal.txt").read_text().splitlines()
    assert lines[0] == NOTE
    assert [line.split(",")[0] for line in lines[1:3]] == [
        "arc_table8: complete; 5 points",
        "dropmatch_table10: complete; 3 points",
    ]
    for name in ("arc_table8", "dropmatch_table10"):
        folder = out / name
        assert (
            TITLE in (folder / f"{name}_paper.md").read_text()
            and TITLE in (folder / "index.html").read_text()
        )
    rows = list(csv.DictReader((out / "dropmatch_table10" / "dropmatch_table10_paper.csv").open()))
    assert all(row["value"] for row in rows if row["value_name"] in ("judge_score", "tau"))


def test_a_store_of_real_results_is_refused(command, capsys, tmp_path):
    real = tmp_path / "real"
    assert command("method=ar", "n=1", "timed=0", store=real / "store").status == 0
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
