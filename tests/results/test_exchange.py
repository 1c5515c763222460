"""A store's cells in the files of other programs: Spec-Bench and EAGLE, Parquet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from bench import exchange
from results.exchange import parquet, spec_bench
from results.exchange.base import ExchangeError, Source
from results.exchange.parquet import public
from results.metrics.summary import summary_of
from results.store.cells import Store
from results.store.sample import Timed, TimedRun
from results.store.traces import TraceFolder
from tests.helpers.synthetic_cells import sample
from tests.helpers.viewed_cells import answer, traces

TEXTS = ["first answer", "second"]
STARTED = "2026-01-02T03:04:05+00:00"


def two_turn_store(root: Path) -> Store:
    """An autoregressive cell and a MARS cell of three prompts of two turns; two of them timed. MARS
    takes two cycles in the first turn (1 + 2 + 2 tokens) and one in the second (1 + 2)."""
    config = {
        "pair": {"name": "tiny", "target": "/home/user/models/target"},
        "rule": {"name": "lossless"},
        "drafter": {"name": "none"},
        "task": {"name": "made_up"},
        "decoding": {"temperature": 1.0},
        "draft": {"length": 4},
        "seed": 0,
        "baseline": "tiny-ar-made_up",
    }
    relaxed = {"rule": {"name": "mars", "theta": 0.9}, "drafter": {"name": "model"}}
    shared = {
        "texts": TEXTS,
        "finish": ["eos", "length"],
        "turn_tokens": [5, 3],
        "prompt_tokens": 9,
        "answer": "42",
    }
    plain = {"committed": [1] * 6, "accepted": [0] * 6}
    drafted = {
        "committed": [2, 2, 2],
        "accepted": [1, 1, 2],
        "relaxed": 1,
        "details": {"strict": 1.0},
        "flags": {"wide": 1},
    }
    store = Store(root)
    for rule, changes, fields in (("ar", {}, plain), ("mars", relaxed, drafted)):
        with store.cell(f"tiny-{rule}-made_up").lock() as cell:
            cell.write_config(config | changes)
            cell.write_environment(
                {
                    "argv": ["/home/user/bench/__main__.py"],
                    "git": {"commit": "abc"},
                    "packages": {"torch": "2.13.0"},
                }
            )
            for i in range(3):
                cell.append(sample(f"p{i}", range(8), score=float(i % 2), **fields, **shared))
            for i in range(2):
                base = TimedRun(8, 6, 0.25, 1.5 + i)
                own, base = (base, None) if rule == "ar" else (TimedRun(8, 3, 0.25, 0.5 + i), base)
                cell.append_timed(Timed(f"p{i}", own, base, "host-name", "boot", STARTED))
    return store


@pytest.fixture(autouse=True)
def every_score_is_an_exact_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "score_of", lambda config: ("exact_match", True))


def mars(store: Store, timed_only: bool) -> list[Source]:
    """The source of the MARS cell."""
    return list(exchange.sources(store, "*mars*", timed_only))


def choices(file: Path) -> dict[str, dict]:
    """Question -> its only choice."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["question_id"]: row["choices"][0] for row in rows}


def test_answers_as_spec_bench_reads_them(tmp_path: Path) -> None:
    """MARS took 0.25 + 0.5 s and 0.25 + 1.5 s for 8 tokens of two turns, two cycles in the first
    and one in the second; the baseline 0.25 + 1.5 s and 0.25 + 2.5 s, a cycle for each token but
    those of the prefill."""
    store = two_turn_store(tmp_path / "store")
    (own, count), (base, base_count) = spec_bench.write(mars(store, True), tmp_path / "out")
    assert count == base_count == 2 and base.name == f"{own.stem}.baseline.jsonl"
    for file, steps, lengths, first in (
        (own, [2, 1], [2, 2, 2], 0.75),
        (base, [4, 2], [1] * 6, 1.75),
    ):
        assert choices(file) == {
            name: {
                "index": 0,
                "turns": TEXTS,
                "decoding_steps": steps,
                "new_tokens": [5, 3],
                "accept_lengths": lengths,
                "wall_time": [seconds],
            }
            for name, seconds in (("p0", first), ("p1", first + 1))
        }
    (own, count), _ = spec_bench.write(mars(store, False), tmp_path / "all")
    assert count == 3
    assert [("wall_time" in choice) for choice in choices(own).values()] == [True, True, False]


def test_a_timed_run_with_other_tokens_keeps_its_own_count(tmp_path: Path) -> None:
    """The wall time belongs to the tokens that were decoded then."""
    store = two_turn_store(tmp_path / "store")
    with store.cell("tiny-mars-made_up").lock() as cell:
        cell.append_timed(
            Timed("p0", TimedRun(5, 2, 0.5, 1.0), TimedRun(8, 6, 0.5, 2.0), "h", "b", "2026-01-01")
        )
    (own, _), _ = spec_bench.write(mars(store, True), tmp_path / "out")
    choice = choices(own)["p0"]
    assert choice["new_tokens"] == [5] and choice["wall_time"] == [1.5]
    assert choice["decoding_steps"] == [3], "cycles of the turns are not known"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two cells, of which one was traced, and a traced one of another task."""
    made = two_turn_store(tmp_path / "store")
    traced = traces(tmp_path / "other", [answer("p0", [0, 1, 2, 3, 4, 5, 6, 7], 1.0)])
    columns = traced.frame().to_dict("list")
    further = columns | {"prompt": "p0", "margin": [0.5] * len(columns["token"])}
    TraceFolder(made.cell("tiny-mars-made_up")).add(["p0"], [further], None)
    TraceFolder(made.cell("tiny-ar-made_up")).add(["p0"], [columns], None)
    return made


@pytest.fixture
def dataset(store: Store, tmp_path: Path) -> Path:
    folder = tmp_path / "dataset"
    written = list(parquet.write(exchange.sources(store, "*", False), folder))
    assert all(path.is_file() for path, _ in written)
    return folder


def load(folder: Path, name: str):
    from datasets import load_dataset

    return load_dataset(str(folder), name, split="train", cache_dir=str(folder.parent / "cache"))


def test_samples_are_those_of_the_store(store: Store, dataset: Path) -> None:
    rows = {(row["cell"], row["id"]): row for row in load(dataset, "samples")}
    names = ("output_ids", "committed", "accepted", "texts", "turn_tokens", "finish", "score")
    for cell in store.cells():
        clocks = {timed.id: timed for timed in cell.timed()}
        for own in cell.good_samples():
            row = rows.pop((cell.key, own.id))
            for name in (*names, "relaxed"):
                assert row[name] == getattr(own, name), name
            assert json.loads(row["details"]) == own.details
            assert json.loads(row["flags"]) == own.flags and row["timed_parted"] is None
            told = (row["timed_decode_s"], row["session"], row["baseline_tokens"])
            timed = clocks.get(own.id)
            assert told == (
                (timed.own.decode_s, STARTED, timed.runs[1].tokens) if timed else (None,) * 3
            )
    assert not rows


def test_cells_hold_every_metric(store: Store, dataset: Path) -> None:
    for row in load(dataset, "cells"):
        cell = store.cell(row["cell"])
        summary = summary_of(cell, store.cell(cell.config()["baseline"]), "exact_match", True)
        assert row["answers"] == 3 and row["pair"] == "tiny" and row["temperature"] == 1.0
        for name, value in summary.plain().items():
            told = json.loads(row[name]) if isinstance(value, dict) else row[name]
            assert told == (list(value) if isinstance(value, tuple) else value), name


def test_traces_of_different_columns_are_one_table(store: Store, dataset: Path) -> None:
    rows = load(dataset, "traces").to_pandas()
    assert set(rows["cell"]) == {"tiny-ar-made_up", "tiny-mars-made_up"} and len(rows) == 16
    mars = rows[rows["cell"] == "tiny-mars-made_up"]
    frame = TraceFolder(store.cell("tiny-mars-made_up")).frame()
    for name in ("token", "clause"):
        assert mars[name].tolist() == frame[name].tolist()
    assert mars["margin"].tolist() == [0.5] * 8
    assert rows[rows["cell"] == "tiny-ar-made_up"]["margin"].isna().all()


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
    given = {
        "argv": ["bench", "store.dir=/home/ada/store"],
        "earlier": [{"argv": ["x"]}],
        "variables": {"SLURM_JOB_USER": "ada", "HF_HOME": "/home/ada/hf"},
        "pair": {"target": "random:/home/ada/models/tiny", "draft": "~/draft", "task": "a/b"},
    }
    assert public(given) == {
        "variables": {"HF_HOME": "hf"},
        "earlier": [{}],
        "pair": {"target": "random:tiny", "draft": "draft", "task": "a/b"},
    }
