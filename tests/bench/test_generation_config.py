"""What a target's generation_config.json asks for and no method applies is refused, at a run and at a dry run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench.config.cell import Cell
from bench.config.compose import composer
from bench.config.errors import ConfigError
from bench.run.models import load_language_model
from methods.engine.families import unapplied


@pytest.mark.parametrize(("values", "asked"), [
    ({"repetition_penalty": 1.05}, {"repetition_penalty": 1.05}),
    ({"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_new_tokens": None, "bad_words_ids": []}, {}),
    ({"temperature": 0.6, "top_p": 0.95, "do_sample": True, "eos_token_id": [1, 2], "max_length": 4096}, {}),
    ({"no_repeat_ngram_size": 3, "suppress_tokens": [1, 2], "begin_suppress_tokens": [4], "min_new_tokens": 5,
      "bad_words_ids": [[3]], "forced_eos_token_id": 0, "forced_bos_token_id": 7},
     {"no_repeat_ngram_size": 3, "suppress_tokens": [1, 2], "begin_suppress_tokens": [4], "min_new_tokens": 5,
      "bad_words_ids": [[3]], "forced_eos_token_id": 0, "forced_bos_token_id": 7}),
])
def test_what_is_not_applied(values: dict, asked: dict) -> None:
    assert unapplied(values) == asked


@pytest.fixture
def penalised(pair_folder: Path, tmp_path: Path) -> Path:
    """A target that asks for a penalty."""
    folder = tmp_path / "target"
    shutil.copytree(pair_folder / "target", folder)
    file = folder / "generation_config.json"
    given = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(given | {"repetition_penalty": 1.5}))
    return folder


@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_a_penalty_is_refused_before_anything_runs(penalised: Path, dry_run: str) -> None:
    with composer() as hydra, pytest.raises(ConfigError) as error:
        assert hydra.point(["pair=local", f"pair.target={penalised}", "method=ar", "task=mini_gsm",
                            f"dry_run={dry_run}"]).cell
    assert str(error.value) == (f"{penalised}: its generation_config.json asks for repetition_penalty=1.5, which no "
                                "method here applies; pair.ignore_generation_config=true decodes without")


def test_it_can_be_ignored_and_changes_no_name(penalised: Path, pair_folder: Path) -> None:
    with composer() as hydra:
        def cell(*more: str) -> Cell:
            return hydra.point(["pair=local", "method=ar", "task=mini_gsm", *more]).cell

        ignoring = cell(f"pair.target={penalised}", "pair.ignore_generation_config=true")
        assert ignoring.record()["pair"]["ignore_generation_config"] is True
        plain = cell(f"pair.target={pair_folder / 'target'}")
        assert plain.name == cell(f"pair.target={pair_folder / 'target'}", "pair.ignore_generation_config=true").name
        assert "ignore_generation_config" not in plain.record()["pair"]
        assert load_language_model(ignoring.pair, ignoring.engine, "target").vocab_size


def test_the_day_of_a_task_names_the_cell_where_it_is_given(pair_folder: Path) -> None:
    with composer() as hydra:
        def cell(*more: str) -> Cell:
            return hydra.point(["pair=local", f"pair.target={pair_folder / 'target'}", "method=ar",
                                "task=mini_gsm", *more]).cell

        plain, dated = cell(), cell("task.date=2025-01-02")
        assert plain.name != dated.name and "date" not in plain.record()["task"]
        assert dated.record()["task"]["date"] == "2025-01-02"
        assert str(dated.load_task().prompts(1)[0].date) == "2025-01-02"
        with pytest.raises(ConfigError, match=r"task\.date"):
            cell("task.date=tomorrow")
