"""A store's cells in the files of other programs: Spec-Bench and EAGLE, Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from bench import exchange
from results.exchange.parquet import public
from results.metrics.summary import summary_of
from results.store.cells import Store
from results.store.traces import TraceFolder
from tests.helpers.synthetic_cells import compared, sample
from tests.helpers.tables import beside
from tests.helpers.viewed_cells import answer, traces

CELLS = beside(__file__, "two_turns.yaml")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An autoregressive cell and a MARS cell of three prompts of two turns; two of them timed, one
    traced, MARS with a column more. MARS takes two cycles in the first turn (1 + 2 + 2 tokens) and
    one in the second (1 + 2)."""
    monkeypatch.setattr(exchange, "score_of", lambda config: ("exact_match", True))
    traced = traces(tmp_path / "other", [answer("p0", [0, 1, 2, 3, 4, 5, 6, 7], 1.0)])
    columns = traced.frame().to_dict("list")
    made = Store(tmp_path / "store")
    for rule, decode_s, further in (("ar", 1.5, {}), ("mars", 0.5, {"margin": [0.5] * 8})):
        with made.cell(f"tiny-{rule}-made_up").lock() as cell:
            cell.write_config(CELLS[rule]["config"])
            cell.write_environment({"argv": ["/home/user/bench/__main__.py"]})
            for i in range(3):
                plain, own = (
                    sample(f"p{i}", range(8), score=float(i % 2), **CELLS[name]["samples"])
                    for name in ("ar", rule)
                )
                cell.append(own)
                clock = {"decode_s": decode_s + i, "base_decode_s": 1.5 + i, "prefill_s": 0.25}
                if i < 2:
                    beside = None if rule == "ar" else plain
                    cell.append_timed(compared(own, beside, **clock).timed)
        TraceFolder(cell).add(["p0"], [columns | further], None)
    return made


@pytest.fixture
def write(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Writes the store in a form, into out/; the files and their numbers of rows, as it says."""

    def written(*words: str) -> list[tuple[Path, int]]:
        assert exchange.main([*words, f"store.dir={store.root}", f"out={tmp_path / 'out'}"]) == 0
        lines = [line.split(": ") for line in capsys.readouterr().out.splitlines()]
        return [(Path(file), int(count)) for file, count in lines]

    return written


def choices(file: Path) -> dict[str, dict]:
    """Question -> its only choice."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["question_id"]: row["choices"][0] for row in rows}


def test_answers_as_spec_bench_reads_them(write: Callable[..., Any]) -> None:
    """MARS took 0.25 + 0.5 s and 0.25 + 1.5 s for 8 tokens of two turns, two cycles in the first
    and one in the second; the baseline 0.25 + 1.5 s and 0.25 + 2.5 s, a cycle for each token but
    those of the prefill."""
    (own, count), (base, base_count) = write("to=spec_bench", "cells=*mars*")
    assert count == base_count == 2 and base.name == f"{own.stem}.baseline.jsonl"
    for file, steps, lengths, first in (
        (own, [2, 1], [2, 2, 2], 0.75),
        (base, [4, 2], [1] * 6, 1.75),
    ):
        assert choices(file) == {
            name: {
                "index": 0,
                "turns": ["first answer", "second"],
                "decoding_steps": steps,
                "new_tokens": [5, 3],
                "accept_lengths": lengths,
                "wall_time": [seconds],
            }
            for name, seconds in (("p0", first), ("p1", first + 1))
        }
    (own, count), _ = write("to=spec_bench", "cells=*mars*", "prompts=all")
    assert count == 3
    assert [("wall_time" in choice) for choice in choices(own).values()] == [True, True, False]


def test_a_timed_run_with_other_tokens_keeps_its_own_count(
    store: Store, write: Callable[..., Any]
) -> None:
    """The wall time belongs to the tokens that were decoded then."""
    shorter = compared(sample("p0", range(5), committed=[2, 2]))
    with store.cell("tiny-mars-made_up").lock() as cell:
        cell.append_timed(shorter.timed)
    (own, _), _ = write("to=spec_bench", "cells=*mars*")
    choice = choices(own)["p0"]
    assert choice["new_tokens"] == [5] and choice["wall_time"] == [1.5]
    assert choice["decoding_steps"] == [3], "cycles of the turns are not known"


@pytest.fixture
def dataset(write: Callable[..., Any], tmp_path: Path) -> Path:
    *tables, card = [path for path, _ in write("to=parquet")]
    assert card.is_file()
    assert not any("__index_level_0__" in pq.read_schema(path).names for path in tables)
    return tmp_path / "out"


def load(folder: Path, name: str):
    from datasets import load_dataset

    return load_dataset(str(folder), name, split="train", cache_dir=str(folder.parent / "cache"))


def test_samples_are_those_of_the_store(store: Store, dataset: Path) -> None:
    rows = {(row["cell"], row["id"]): row for row in load(dataset, "samples")}
    names = ("output_ids", "committed", "accepted", "relaxed", "texts", "turn_tokens")
    for cell in store.cells():
        clocks = {timed.id: timed for timed in cell.timed()}
        for own in cell.good_samples():
            row = rows.pop((cell.key, own.id))
            for name in (*names, "finish", "score"):
                assert row[name] == getattr(own, name), name
            assert json.loads(row["details"]) == own.details
            assert json.loads(row["flags"]) == own.flags and row["timed_parted"] is None
            told, timed = (None,) * 3, clocks.get(own.id)
            if timed:
                told = timed.own.decode_s, timed.started, timed.runs[1].tokens
            assert (row["timed_decode_s"], row["session"], row["baseline_tokens"]) == told
    assert not rows


def test_cells_hold_every_metric(store: Store, dataset: Path) -> None:
    for row in load(dataset, "cells"):
        cell = store.cell(row["cell"])
        summary = summary_of(cell, store.cell(cell.config()["baseline"]), "exact_match", True)
        assert row["answers"] == 3 and row["pair"] == "tiny" and row["temperature"] == 1.0
        for name, value in json.loads(json.dumps(summary.plain())).items():
            told = json.loads(row[name]) if isinstance(value, dict) else row[name]
            assert told == value, name


def test_traces_of_different_columns_are_one_table(store: Store, dataset: Path) -> None:
    rows = load(dataset, "traces").to_pandas()
    assert set(rows["cell"]) == {"tiny-ar-made_up", "tiny-mars-made_up"} and len(rows) == 16
    for key, own in rows.groupby("cell"):
        frame = TraceFolder(store.cell(key)).frame()
        for name in ("token", "clause"):
            assert own[name].tolist() == frame[name].tolist()
        assert own["margin"].dropna().tolist() == [0.5] * 8 * ("mars" in key)


def test_the_card(dataset: Path) -> None:
    """Front matter as a hub reads it: each config's files exist, one is the default."""
    _, front, text = (dataset / "README.md").read_text().split("---\n", 2)
    configs = {one["config_name"]: one for one in yaml.safe_load(front)["configs"]}
    assert list(configs) == ["samples", "cells", "traces"] and configs["samples"]["default"]
    assert all(list(dataset.glob(one["data_files"])) for one in configs.values())
    assert "6 answers of 2 cells" in text and "mars" in text


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
