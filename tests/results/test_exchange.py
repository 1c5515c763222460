"""A store's cells in the files of other programs: Spec-Bench and EAGLE, Parquet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from results.exchange import parquet, spec_bench
from results.exchange.base import ExchangeError, measured_sources
from results.exchange.parquet import METRICS, public
from results.metrics.delta import clocked_interval
from results.metrics.summary import summary_of
from results.store.cells import Store
from results.store.sample import Timed, TimedRun
from results.store.traces import TraceFolder
from tests.helpers.synthetic_cells import sample
from tests.helpers.viewed_cells import answer, traces

TEXTS = ["first answer", "second"]


def exact_match(config: object) -> tuple[str, bool]:
    """The score of every cell here."""
    return "exact_match", True


def two_turn_store(root: Path) -> Store:
    """An autoregressive cell and a MARS cell of three prompts of two turns; two of them timed. MARS
    takes two cycles in the first turn (1 + 2 + 2 tokens) and one in the second (1 + 2)."""
    store = Store(root)
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
    shared = {
        "texts": TEXTS,
        "finish": ["eos", "length"],
        "turn_tokens": [5, 3],
        "prompt_tokens": 9,
        "answer": "42",
    }
    plain = [
        sample(f"p{i}", range(8), committed=[1] * 6, accepted=[0] * 6, score=float(i > 0), **shared)
        for i in range(3)
    ]
    drafted = [
        sample(
            f"p{i}",
            range(8),
            committed=[2, 2, 2],
            accepted=[1, 1, 2],
            score=float(i % 2),
            relaxed=1,
            details={"strict": 1.0},
            flags={"wide": i},
            **shared,
        )
        for i in range(3)
    ]
    clock = [
        Timed(
            f"p{i}",
            TimedRun(8, 3, 0.25, 0.5 + i),
            TimedRun(8, 6, 0.25, 1.5 + i),
            "host-name",
            "boot",
            "2026-01-02T03:04:05+00:00",
        )
        for i in range(2)
    ]
    alone = [Timed(one.id, one.runs[1], None, one.host, one.boot, one.started) for one in clock]
    arms = {
        "tiny-ar-made_up": (config, plain, alone),
        "tiny-mars-made_up": (
            {**config, "rule": {"name": "mars", "theta": 0.9}, "drafter": {"name": "model"}},
            drafted,
            clock,
        ),
    }
    for key, (settings, samples, timed) in arms.items():
        cell = store.cell(key)
        with cell.lock():
            cell.write_config(settings)
            cell.write_environment(
                {
                    "argv": ["/home/user/bench/__main__.py"],
                    "git": {"commit": "abc"},
                    "packages": {"torch": "2.13.0"},
                }
            )
            for one in samples:
                cell.append(one)
            for run in timed:
                cell.append_timed(run)
    return store


FILES = Path(__file__).parent / "exchange_files"
METHOD, BASELINE, EAGLE = (
    FILES / "spec_bench.jsonl",
    FILES / "spec_bench_baseline.jsonl",
    FILES / "eagle.jsonl",
)


def choices(file: Path) -> dict[str, dict]:
    """Question -> its only choice."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["question_id"]: row["choices"][0] for row in rows}


def test_tasks_with_intervals() -> None:
    """By hand, from spec_bench.jsonl and spec_bench_baseline.jsonl (question 302 is an ERROR and
    left out): 81, 125 and 301 have 20, 9 and 10 new tokens in 5, 1.5 and 4 s; the baseline 12, 9
    and 5 in 10, 3 and 2 s. Pooled 39 ÷ 10.5 against 26 ÷ 15 tokens/s, on prompts that both timed,
    so 15 ÷ 7. τ: overall (20 + 9 + 10) ÷ (5 + 3 + 2) = 3.9; mt_bench (81, 125) 29 ÷ 8; qa 5."""
    tasks, failed = spec_bench.read(METHOD, BASELINE)
    assert [task["task"] for task in tasks] == ["overall", "mt_bench", "qa"]
    overall, mt_bench, qa = tasks
    assert (overall["n"], failed, overall["cycles"], overall["paired"]) == (3, 1, 10, 3)
    assert (overall["tau"], mt_bench["tau"], qa["tau"]) == pytest.approx((3.9, 29 / 8, 5))
    assert (overall["tokens_per_s"], overall["baseline_tokens_per_s"]) == pytest.approx(
        (39 / 10.5, 26 / 15)
    )
    assert overall["speedup"] == pytest.approx(15 / 7)
    assert overall["tau_ci95"] == pytest.approx(clocked_interval([20, 9, 10], [5, 3, 2]))
    assert overall["speedup_ci95"] == pytest.approx(
        clocked_interval([20, 9, 10], [5, 1.5, 4], [12, 9, 5], [10, 3, 2])
    )
    assert overall["baseline_tokens_per_s_ci95"] == pytest.approx(
        clocked_interval([12, 9, 5], [10, 3, 2])
    )
    assert qa["tau_ci95"] is None, "one prompt has no spread"


def test_a_file_of_eagle_counts_its_last_cycle() -> None:
    """`idxs` are 0-based: question 81 has (3 + 1) + (1 + 1) cycles for 18 tokens and, in its other
    answer, 4 for 12; 82 has 5 for 10."""
    [overall], _ = spec_bench.read(EAGLE)
    assert (overall["n"], overall["cycles"]) == (2, 15) and overall["tau"] == pytest.approx(40 / 15)
    assert overall["tau_ci95"] == pytest.approx(clocked_interval([30, 10], [10, 5]))
    assert overall["speedup"] is None and overall["speedup_ci95"] is None


def test_a_store_comes_back_as_it_was(tmp_path: Path) -> None:
    """Accept lengths, tokens and wall times of a store survive the trip through a file, and so does
    the baseline."""
    store = two_turn_store(tmp_path / "store")
    sources = [one for one in measured_sources(store, "timed", exact_match) if "mars" in one.name]
    own, base = spec_bench.write(sources, tmp_path / "out")
    assert (own.answers, base.answers) == (
        2,
        2,
    ) and base.path.name == f"{own.path.stem}.baseline.jsonl"
    [overall], _ = spec_bench.read(own.path, base.path)
    cell = store.cell("tiny-mars-made_up")
    samples, clocks = (
        {one.id: one for one in cell.good_samples()},
        {one.id: one for one in cell.timed()},
    )
    held = choices(own.path)
    assert set(held) == set(clocks) < set(samples)
    for name, choice in held.items():
        sample, clock = samples[name], clocks[name]
        assert choice["accept_lengths"] == sample.committed and choice["turns"] == sample.texts
        assert choice["new_tokens"] == sample.turn_tokens and choice["decoding_steps"] == [2, 1]
        assert choice["wall_time"] == [clock.own.prefill_s + clock.own.decode_s]
    for name, choice in choices(base.path).items():
        clock = clocks[name]
        assert sum(choice["new_tokens"]) == clock.baseline.tokens
        assert choice["wall_time"] == [clock.baseline.prefill_s + clock.baseline.decode_s]
    assert overall["tau"] == pytest.approx(
        sum(map(sum, (samples[i].committed for i in clocks))) / 6
    )
    every = [one for one in measured_sources(store, "all", exact_match) if "mars" in one.name]
    own, _ = spec_bench.write(every, tmp_path / "all")
    assert [("wall_time" in choice) for choice in choices(own.path).values()] == [True, True, False]


def test_a_timed_run_with_other_tokens_keeps_its_own_count(tmp_path: Path) -> None:
    """The wall time belongs to the tokens that were decoded then."""
    store = two_turn_store(tmp_path / "store")
    with store.cell("tiny-mars-made_up").lock() as cell:
        cell.append_timed(
            Timed("p0", TimedRun(5, 2, 0.5, 1.0), TimedRun(8, 6, 0.5, 2.0), "h", "b", "2026-01-01")
        )
    sources = [one for one in measured_sources(store, "timed", exact_match) if "mars" in one.name]
    own, _ = spec_bench.write(sources, tmp_path / "out")
    assert choices(own.path)["p0"]["new_tokens"] == [5] and choices(own.path)["p0"][
        "wall_time"
    ] == [1.5]


GOOD = {
    "question_id": 1,
    "choices": [{"index": 0, "turns": ["a"], "new_tokens": [3], "wall_time": [1.0]}],
}


def changed(**choice) -> dict:
    return {**GOOD, "choices": [{**GOOD["choices"][0], **choice}]}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "line 2: is not JSON"),
        (b"[]", "line 2: Input should be a valid dictionary"),
        (b"\xff\xfe", "line 2: is not JSON"),
        (b"[" * 100_000, "line 2: is not JSON .nested too deeply"),
        ({"choices": GOOD["choices"]}, "line 2: question_id: Field required"),
        ({"question_id": 1, "choices": []}, "line 2: choices: List should have at least 1 item"),
        (
            changed(new_tokens=["3"]),
            "line 2: choices.0.new_tokens.0: Input should be a valid integer",
        ),
        (
            changed(new_tokens=[-1]),
            "line 2: choices.0.new_tokens.0: Input should be greater than or equal to 0",
        ),
        (changed(wall_time=[float("nan")]), "line 2: choices.0.wall_time.0"),
        (
            changed(accept_lengths="many"),
            "line 2: choices.0.accept_lengths: Input should be a valid list",
        ),
        (
            changed(new_tokens=[10**400]),
            "line 2: choices.0.new_tokens.0: Input should be less than",
        ),
        (GOOD, "line 2: repeats '1' of line 1: remove one of them"),
    ],
    ids=range(12),
)
def test_a_wrong_line_is_named(line, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    second = line if isinstance(line, bytes) else json.dumps(line).encode()
    file.write_bytes(json.dumps(GOOD).encode() + b"\n" + second)
    for own, baseline in ((file, None), (METHOD, file)):
        with pytest.raises(ExchangeError, match=complaint) as refusal:
            spec_bench.read(own, baseline)
        assert str(refusal.value).startswith(str(file)) and "\n" not in str(refusal.value)


def test_a_file_without_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    for text, reason in (
        ("", "it is empty"),
        (METHOD.read_text().splitlines()[3], "1 × ERROR in place of a turn"),
    ):
        file.write_text(text)
        with pytest.raises(ExchangeError, match=reason):
            spec_bench.read(file)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two cells, of which one was traced, and a traced one of another task."""
    made = two_turn_store(tmp_path / "store")
    traced = traces(tmp_path / "other", [answer("p0", [0, 1, 2, 3, 4, 5, 6, 7], 1.0)])
    columns = traced.frame().to_dict("list")
    TraceFolder(made.cell("tiny-mars-made_up")).add(
        ["p0"],
        [
            {name: values for name, values in columns.items() if name not in ("prompt", "clause")}
            | {"prompt": "p0", "clause": columns["clause"], "margin": [0.5] * len(columns["token"])}
        ],
        None,
    )
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
        for own in cell.good_samples():
            row = held.pop((cell.key, own.id))
            for name in (
                "output_ids",
                "committed",
                "accepted",
                "texts",
                "turn_tokens",
                "finish",
                "score",
                "relaxed",
            ):
                assert row[name] == getattr(own, name), name
            assert (
                json.loads(row["details"]) == own.details and json.loads(row["flags"]) == own.flags
            )
            clock = clocks.get(own.id)
            assert row["decode_s"] == (None if clock is None else clock.own.decode_s)
            assert (row["parted"], row["stalled"]) == (
                (None, None) if clock is None else (False, False)
            )
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
    assert (
        mars["token"].tolist() == frame["token"].tolist()
        and mars["clause"].tolist() == frame["clause"].tolist()
    )
    assert (
        mars["margin"].tolist() == [0.5] * 8
        and rows[rows["cell"] == "tiny-ar-made_up"]["margin"].isna().all()
    )


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
