"""dry_run=true: memory against real tensors, what a repository would bring, and what is said
offline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bench.__main__ import main
from bench.config.cell import Cell
from bench.config.compose import composer
from bench.config.paths import CONF
from bench.dry_run.downloads import chosen, config_folder, listing
from bench.dry_run.estimate import (
    PlannedCell,
    answer_tokens,
    duration,
    known_sizes,
    memory_of,
    prompts_and_answers,
    seconds,
)
from methods.engine.loading import load_model, nbytes


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    yield
    listing.cache_clear()
    config_folder.cache_clear()


def cell_of(*lines: str) -> Cell:
    with composer() as hydra:
        return hydra.point(" ".join(lines).split()).cell


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_and_cache_are_those_of_the_real_pair(dtype: str) -> None:
    cell = cell_of(f"pair=tiny method=sps engine.dtype={dtype} batch=3 n=100 engine.device=cpu")
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
    result = command("pair=qwen3_8b method=pld dry_run=true")
    assert not result.err
    assert "  model Qwen/Qwen3-8B: about 16.4 GB; hub not reachable" in result.out.splitlines()
    assert "unknown: pair.target=Qwen/Qwen3-8B" in result.out
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("offline")
def test_a_report_on_a_papers_pair(command) -> None:
    """Prompts and memory of each point; hours; data sets among the downloads."""
    result = command("report=arc_table1 pair=llama31_8b n=80 dry_run=true")
    assert "EAGLE-3" in result.out and "about 850.0 MB" in result.out
    assert re.search(r"takes about [\d.,]+ GPU h, right to a factor of two", result.out)
    wrong = command("report=arc_table1 scale=huge dry_run=true", status=2)
    assert wrong.err.startswith("error: scale=huge: unknown")


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


def test_lengths_are_those_of_the_longest_name_up_to_the_limit() -> None:
    assert answer_tokens(cell_of("task=gsm8k_eagle")) == 73, "as gsm8k's reference solutions"
    assert answer_tokens(cell_of("task=mmlu_fsd")) == 44
    assert answer_tokens(cell_of("task=gsm8k_eagle decoding.max_new_tokens=9")) == 9
    cell = cell_of("task=csqa decoding.max_new_tokens=200")
    assert answer_tokens(cell) == 200, "nothing is known of it"


def test_seconds_follow_from_the_rate_of_the_nearest_size() -> None:
    """10 answers of 100 tokens at 1000 tokens/s, half of them timed at 200: plain decoding, once,
    and two drafted cells. Llama 70B on four GPUs of which each holds some layers takes 4 · 70.55 ÷
    8.03 as long."""
    words = "task=csqa n=10 timed=5 decoding.max_new_tokens=100 engine.device=cpu"
    cells = [cell_of("pair=llama31_8b", words, f"method={method}") for method in ("eagle3", "pld")]
    once = 1000 / 1000 + 500 / 200
    assert seconds([PlannedCell(cell) for cell in cells]) == pytest.approx(
        {"core": 0, "GPU": 3 * once}
    )
    left = seconds([PlannedCell(cells[0], answered=8)])
    assert left["GPU"] == pytest.approx(2 * (200 / 1000 + 500 / 200))
    large = cell_of("pair=llama33_70b method=ar", words, "engine.devices=4")
    assert large.engine.parallel == "layers"
    assert seconds([PlannedCell(large)])["GPU"] == pytest.approx(
        once * 4 * 70553706496 / 8030261248, rel=1e-6
    )
    hundreds = [PlannedCell(cells[0].replace(n=1000, timed=0, seed=seed)) for seed in range(100)]
    assert duration(hundreds) == "5.6 GPU h", "2 · 100 · 100,000 tokens at 1000 a second"
    unknown = cell_of("pair=local pair.target=org/unknown method=ar", words)
    assert duration([PlannedCell(unknown)]) == ""


def test_prompts_are_counted_without_their_data() -> None:
    cell = cell_of("task=alpaca_eagle engine.device=cpu")
    assert prompts_and_answers(cell) == (80, 80)


@pytest.mark.parametrize(
    "name",
    [
        path.stem
        for path in sorted((CONF / "pair").glob("*.yaml"))
        if yaml.safe_load(path.read_text()).get("target") in known_sizes().models
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
    assert sources - known_sizes().models.keys() == {"nvidia/Qwen3-235B-A22B-Eagle3"}, (
        "its shape is not known here"
    )
