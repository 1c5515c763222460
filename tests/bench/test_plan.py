"""dry_run=true: memory against real tensors, what a repository would bring, and what is said
offline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from bench.__main__ import main
from bench.config.cell import Cell
from bench.config.compose import composer
from bench.config.paths import CONF
from bench.dry_run.downloads import chosen, config_folder, listing
from bench.dry_run.estimate import Lengths, Point, counted, known, memory_of, seconds
from methods.engine.loading import load_model, nbytes
from results.store.cells import Store


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    yield
    listing.cache_clear()
    config_folder.cache_clear()


def cell_of(*overrides: str) -> Cell:
    with composer() as hydra:
        return hydra.point(overrides).cell


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_and_cache_are_those_of_the_real_pair(dtype: str) -> None:
    cell = cell_of(
        "pair=tiny", "method=sps", f"engine.dtype={dtype}", "batch=3", "n=100", "engine.device=cpu"
    )
    folders = {role: Path(cell.pair.checkpoint(role).source) for role in cell.roles}
    found = memory_of(cell, 2, folders)
    assert found.rows == 3 and memory_of(cell, 64, folders).rows == 64, "the quality pass"
    for role, (weights, held) in found.parts.items():
        real = load_model(cell.pair.checkpoint(role).source, dtype=dtype)
        cache = real.new_cache(3, found.slots)
        assert weights == pytest.approx(nbytes(real.model), rel=1e-3), "but the rotary frequencies"
        assert held == cache.store.numel() * cache.store.element_size()
    assert (
        found.total == sum(weights + held for weights, held in found.parts.values())
        and found.is_whole
    )


def test_a_repository_is_read_as_it_is_loaded() -> None:
    names = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "original/consolidated.00.pth",
        "config.json",
        "tokenizer.json",
        "README.md",
    ]
    assert chosen(names) == [*names[:3], *names[5:7]]
    assert (
        chosen(["medusa_lm_head.pt"]) == ["medusa_lm_head.pt"] and chosen(names[3:5]) == names[3:4]
    )


@pytest.mark.usefixtures("offline")
def test_offline_a_hub_pair_is_unknown_in_one_line(command, tmp_path: Path) -> None:
    result = command("pair=qwen3_8b", "method=pld", "dry_run=true")
    assert result.status == 0 and not result.err
    assert "  model Qwen/Qwen3-8B: about 16.4 GB; hub not reachable" in result.out.splitlines()
    assert "unknown: pair.target=Qwen/Qwen3-8B" in result.out
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("offline")
def test_a_report_on_a_papers_pair(command) -> None:
    """Prompts and memory of each point; hours with τ of the paper; data sets among the
    downloads."""
    result = command("report=arc_table1", "pair=llama31_8b", "n=80", "dry_run=true")
    assert result.status == 0 and "EAGLE-3" in result.out and "about 850.0 MB" in result.out
    assert re.search(r"GPU hours: [\d.]+ on H100 80GB", result.out)
    assert command("report=arc_table1", "scale=huge", "dry_run=true").err.startswith(
        "error: scale=huge: unknown"
    )


@pytest.mark.usefixtures("offline")
def test_every_point_of_a_papers_reports_is_planned_without_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that wait for a file, and what is compared with them, too; nothing of it is an
    error."""
    reports = "controls_chains,mars_fig5,dropmatch_table2,fsd_fig3,arc_table5"
    assert (
        main([f"report=[{reports}]", "scale=paper", "dry_run=true", f"output.dir={tmp_path}"]) == 0
    )
    out, err = capsys.readouterr()
    [points, beside] = re.findall(
        r"^(\d+) points and (\d+) cells that they are compared with", out, re.M
    )[0]
    assert int(points) > 80 and int(beside) > 10 and not err
    needed = out.partition("needed before you start:")[2]
    for word in (
        "models.train calibrate",
        "models.train judge",
        "gated",
        "kind=judge labels=FILE",
        "Qwen/Qwen3-8B",
    ):
        assert word in needed, needed


def test_lengths_are_those_of_stored_answers_then_those_known(command) -> None:
    store = command(
        "method=ar", "task=mini_chat", "n=8", "timed=0", "decoding.max_new_tokens=64"
    ).store
    lengths, cell = Lengths(store), cell_of("method=ar", "task=mini_chat", "n=8")
    [stored] = [one for one in store.cells() if "-ar-" in one.key]
    mean = round(sum(len(sample.output_ids) for sample in stored.samples()) / 8)
    assert lengths.of(cell)[0] in (mean, 41)
    assert lengths.of(cell_of("task=gsm8k_eagle")) == (73, "its reference solutions")
    assert lengths.of(cell_of("task=gsm8k_eagle", "decoding.max_new_tokens=9"))[0] == 9
    assert lengths.of(cell_of("task=csqa"))[1] == "max_new_tokens"


def test_seconds_follow_from_bytes_lengths_and_tau(tmp_path: Path) -> None:
    """In the quality pass a forward serves the whole batch; in the timed pass each cell runs beside
    plain decoding."""
    cell = cell_of(
        "pair=llama31_8b",
        "method=eagle3",
        "n=10",
        "timed=5",
        "task=csqa",
        "drafter.depth=6",
        "engine.device=cpu",
    )
    target, head, tokens = (
        2 * 8030261248 / 3.35e12,
        2 * 425000000 / 3.35e12,
        10 * cell.max_new_tokens,
    )
    own, lengths = (target + 7 * head) / 4, Lengths(Store(tmp_path))
    assert seconds([Point(cell, 4.0)] * 2, lengths, 2)["GPU"] == pytest.approx(
        [tokens * (target + 2 * own) / 2, tokens * (target / 2 + own)]
    )
    words = ["pair=smollm2", "task=csqa", "n=8", "timed=4", "engine.device=cpu"]
    points = [Point(cell_of(*words, f"method={method}")) for method in ("ar", "pld")]
    time = seconds(points, lengths, 64)["core"]
    quick, slow, tokens = (
        known().cpu["smollm2"]["answers"],
        known().cpu["smollm2"]["clock"],
        8 * cell.max_new_tokens,
    )
    assert time == pytest.approx(
        [
            tokens / quick["plain"] + tokens / quick["drafted"],
            tokens / 2 * (1 / slow["plain"] + 1 / slow["drafted"]),
        ]
    )
    words = ["pair=tiny", "task=mini_chat", "n=64", "timed=0", "method=eagle3", "engine.device=cpu"]
    base, times = known().cpu["tiny"]["answers"], known().cpu["tiny"]["times"]
    for rule, factor in (
        ("lossless", 1.0),
        ("random", times["random"]),
        ("dropmatch_naive", 1 + times["drawn"] * 16 / 64),
    ):
        for traced in (False, True):
            cell = cell_of(*words, f"rule={rule}")
            tokens = 64 * (lengths.of(cell)[0] + known().cpu["tiny"]["start"]["answer"])
            more = factor * times["eagle3"] * (times["traced"] if traced else 1)
            assert seconds([Point(cell, traced=traced)], lengths, 64)["core"][0] == pytest.approx(
                tokens / base["plain"] + tokens / base["drafted"] * more
            )
        assert seconds([Point(cell, answered=48)], lengths, 64)["core"][0] == pytest.approx(
            seconds([Point(cell)], lengths, 64)["core"][0] / 4
        ), "a quarter of the answers is left"
    clock = cell_of(*words, "timed=4")
    more = np.subtract(
        *(seconds([Point(clock)], lengths, 64, sessions)["core"] for sessions in (3, 1))
    )
    assert more == pytest.approx([0, 2 * known().cpu["tiny"]["start"]["cell"]])
    big = cell_of(
        "pair=llama33_70b", "method=ar", "n=1", "timed=0", "task=csqa", "engine.device=cpu"
    )
    assert seconds([Point(big)], lengths, 1)["GPU"][0] == pytest.approx(
        big.engine.devices * 2 * 70553706496 / 3.35e12 * big.max_new_tokens
    ), "all devices wait for one"
    assert counted(cell_of("task=alpaca_eagle", "engine.device=cpu"))[0] == 80


@pytest.mark.parametrize(
    "name",
    [
        path.stem
        for path in sorted((CONF / "pair").glob("*.yaml"))
        if yaml.safe_load(path.read_text()).get("target") in known().models
    ],
)
def test_every_papers_pair_fits_its_gpus(name: str) -> None:
    """On as many GPUs of 80 GB as the pair says, with the draft model where it has one."""
    with composer() as hydra:
        given = [f"pair={name}", "method=ar", "engine.device=cuda", "launch=slurm"]
        has_draft = hydra.point(given).cell.pair.draft is not None
        cell = hydra.point([*given, "method=sps"] if has_draft else given).cell
    assert memory_of(cell, 1, {}).total / cell.engine.devices < 80e9


def test_sizes_of_the_papers_pairs_are_known() -> None:
    with composer() as hydra:
        pairs = [
            hydra.pair([f"pair={name}"])
            for name in hydra.options("pair")
            if name not in ("local", "tiny", "smollm2")
        ]
    sources = {one.source for pair in pairs for one in pair.checkpoints.values()}
    assert sources - known().models.keys() == {"nvidia/Qwen3-235B-A22B-Eagle3"}, (
        "its shape is not known here"
    )
