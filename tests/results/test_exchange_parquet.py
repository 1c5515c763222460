"""The Parquet dataset of a store, read back as its users do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from results.exchange import parquet
from results.exchange.base import ExchangeError, measured_sources
from results.exchange.parquet import METRICS, public
from results.metrics.summary import summary_of
from results.store.cells import Store
from results.store.traces import TraceFolder
from tests.helpers.exchanged_stores import exact_match, two_turn_store
from tests.helpers.viewed_cells import answer, traces


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two cells, of which one was traced, and a traced one of another task."""
    made = two_turn_store(tmp_path / "store")
    traced = traces(tmp_path / "other", [answer("p0", [0, 1, 2, 3, 4, 5, 6, 7], 1.0)])
    columns = traced.frame().to_dict("list")
    TraceFolder(made.cell("tiny-mars-made_up")).add(
        ["p0"], [{name: values for name, values in columns.items() if name not in ("prompt", "clause")}
                 | {"prompt": "p0", "clause": columns["clause"], "margin": [0.5] * len(columns["token"])}], None)
    TraceFolder(made.cell("tiny-ar-made_up")).add(["p0"], [{**columns}], None)
    return made


@pytest.fixture
def dataset(store: Store, tmp_path: Path) -> Path:
    folder = tmp_path / "dataset"
    written = list(parquet.write(measured_sources(store, "all", exact_match), folder))
    assert all(one.path.is_file() for one in written)
    return folder


def load(folder: Path, name: str):
    from datasets import load_dataset

    return load_dataset(str(folder), name, split="train", cache_dir=str(folder.parent / "cache"))


def test_samples_are_those_of_the_store(store: Store, dataset: Path) -> None:
    held = {(row["cell"], row["id"]): row for row in load(dataset, "samples")}
    for cell in store.cells():
        clocks = {one.id: one for one in cell.timed()}
        for sample in cell.good_samples():
            row = held.pop((cell.key, sample.id))
            for name in ("output_ids", "committed", "accepted", "texts", "turn_tokens", "finish", "score", "relaxed"):
                assert row[name] == getattr(sample, name), name
            assert json.loads(row["details"]) == sample.details and json.loads(row["flags"]) == sample.flags
            clock = clocks.get(sample.id)
            assert row["decode_s"] == (None if clock is None else clock.own.decode_s)
            assert (row["parted"], row["stalled"]) == ((None, None) if clock is None else (False, False))
            assert row["baseline_tokens"] == (None if clock is None else clock.runs[1].tokens)
    assert not held


def test_cells_hold_every_metric(store: Store, dataset: Path) -> None:
    for row in load(dataset, "cells"):
        cell = store.cell(row["cell"])
        summary = summary_of(cell, store.cell(cell.config()["baseline"]), "exact_match", True)
        assert row["answers"] == 3 and row["pair"] == "tiny" and row["temperature"] == 1.0
        for name, value in summary.plain().items():
            told = json.loads(row[name]) if isinstance(value, dict) else row[name]
            assert told == (list(value) if isinstance(value, tuple) else value), name
        assert set(METRICS) <= set(row)


def test_traces_of_different_columns_are_one_table(store: Store, dataset: Path) -> None:
    rows = load(dataset, "traces").to_pandas()
    assert set(rows["cell"]) == {"tiny-ar-made_up", "tiny-mars-made_up"} and len(rows) == 16
    mars = rows[rows["cell"] == "tiny-mars-made_up"]
    frame = TraceFolder(store.cell("tiny-mars-made_up")).frame()
    assert mars["token"].tolist() == frame["token"].tolist() and mars["clause"].tolist() == frame["clause"].tolist()
    assert mars["margin"].tolist() == [0.5] * 8 and rows[rows["cell"] == "tiny-ar-made_up"]["margin"].isna().all()


def test_the_card(dataset: Path) -> None:
    """Front matter as a hub reads it: each config's files exist, one is the default."""
    _, front, text = (dataset / "README.md").read_text().split("---\n", 2)
    configs = {one["config_name"]: one for one in yaml.safe_load(front)["configs"]}
    assert list(configs) == ["samples", "cells", "traces"] and configs["samples"]["default"]
    assert all(list(dataset.glob(one["data_files"])) for one in configs.values())
    assert "6 answers of 2 cells" in text and "mars" in text


def test_a_store_without_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match="holds no measured cell"):
        list(parquet.write([], tmp_path / "out"))


def test_what_names_people_and_machines_is_left_out():
    given = {"argv": ["bench", "store.dir=/home/ada/store"], "earlier": [{"argv": ["x"]}],
             "variables": {"SLURM_JOB_USER": "ada", "HF_HOME": "/home/ada/hf"},
             "pair": {"target": "random:/home/ada/models/tiny", "draft": "~/draft", "task": "a/b"}}
    assert public(given) == {"variables": {"HF_HOME": "hf"}, "earlier": [{}],
                             "pair": {"target": "random:tiny", "draft": "draft", "task": "a/b"}}
