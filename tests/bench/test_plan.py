"""dry_run=true: memory against real tensors, what a repository would bring, and what is said
offline."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.config.cell import Cell
from bench.config.errors import ConfigError
from bench.dry_run.downloads import chosen
from bench.dry_run.estimate import (
    PlannedCell,
    answer_tokens,
    duration,
    known_sizes,
    memory_of,
    prompts_and_answers,
    seconds,
)
from bench.dry_run.fit import Machine, check_fit, misfit, on_fullest
from methods.engine.loading import load_model, nbytes
from results.store.state import Todo
from tests.helpers.composing import cell_of

pytestmark = pytest.mark.usefixtures("offline")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_and_cache_are_those_of_the_real_pair(dtype):
    cell = cell_of(f"pair=tiny method=sps engine.dtype={dtype} batch=3 n=100 engine.device=cpu")
    folders = {role: Path(cell.pair.checkpoint(role).source) for role in cell.roles}
    need = memory_of(cell, 2, folders)
    assert need.rows == 3 and memory_of(cell, 64, folders).rows == 64, "the quality pass"
    for role, (weights, cache_bytes) in need.parts.items():
        real = load_model(cell.pair.checkpoint(role).source, dtype=dtype)
        cache = real.new_cache(3, need.slots)
        assert weights == pytest.approx(nbytes(real.model), rel=1e-3), "but the rotary frequencies"
        assert cache_bytes == cache.store.numel() * cache.store.element_size()
    assert (
        need.total == sum(weights + cache_bytes for weights, cache_bytes in need.parts.values())
        and need.is_whole
    )


def test_a_repository_is_read_as_it_is_loaded():
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


def test_every_point_of_a_papers_reports_is_planned_without_a_network(tmp_path, capsys):
    """Those that wait for a file, and what is compared with them, too; nothing of it is an
    error."""
    reports = "controls_chains,mars_fig5,dropmatch_table2,fsd_fig3,arc_table5"
    words = f"report=[{reports}] scale=paper dry_run=true output.dir={tmp_path}"
    assert main(words.split()) == 0
    out, err = capsys.readouterr()
    assert re.match(r"\d\d points and \d\d cells that they are compared with", out) and not err
    needed = out.partition("needed before you start:")[2]
    steps = "models.train calibrate", "models.train judge", "kind=judge labels=FILE"
    assert all(word in needed for word in (*steps, "gated", "Qwen/Qwen3-8B")), needed


def test_lengths_are_those_of_the_longest_name_up_to_the_limit():
    assert answer_tokens(cell_of("task=gsm8k_eagle")) == 73, "as gsm8k's reference solutions"
    assert answer_tokens(cell_of("task=mmlu_fsd")) == 44
    assert answer_tokens(cell_of("task=gsm8k_eagle decoding.max_new_tokens=9")) == 9
    cell = cell_of("task=csqa decoding.max_new_tokens=200")
    assert answer_tokens(cell) == 200, "nothing is known of it"
    counted = prompts_and_answers(cell_of("task=alpaca_eagle engine.device=cpu"))
    assert counted == (80, 80), "without their data"


def test_seconds_follow_from_the_rate_of_the_nearest_size():
    """10 answers of 100 tokens at 1000 tokens/s, half of them timed at 200: plain decoding, once,
    and two drafted cells. Llama 70B on four GPUs of which each holds some layers takes 4 · 70.55 ÷
    8.03 as long."""
    words = "task=csqa n=10 timed=5 decoding.max_new_tokens=100 engine.device=cpu"
    cells = [cell_of("pair=llama31_8b", words, f"method={method}") for method in ("eagle3", "pld")]
    once = 1000 / 1000 + 500 / 200
    assert seconds([PlannedCell(cell) for cell in cells]) == pytest.approx(
        {"core": 0, "GPU": 3 * once}
    )
    todo = Todo(decode=("a", "b"), time=tuple("abcde"))
    left = seconds([PlannedCell(cells[0], todo=todo)])
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


def test_every_papers_pair_is_known_and_fits_its_gpus(hydra):
    """On as many GPUs of 80 GB as the pair says, with the draft model where it has one."""
    sources = set()
    for name in {*hydra.options("pair")} - {"local", "tiny", "smollm2"}:
        pair = hydra.pair([f"pair={name}"])
        sources |= {one.source for one in pair.checkpoints.values()}
        method = "ar" if pair.draft is None else "sps"
        words = f"pair={name} method={method} engine.device=cuda launch=slurm"
        cell = hydra.point(words.split()).cell
        assert memory_of(cell, 1, {}).total / cell.engine.devices < 80e9, name
    assert sources - known_sizes().models.keys() == {"nvidia/Qwen3-235B-A22B-Eagle3"}, (
        "its shape is not known here"
    )


def on_gpus(*lines: str) -> Cell:
    """A cell as a launcher composes it for machines with GPUs."""
    return cell_of("engine.device=cuda launch=slurm dry_run=true", *lines)


def test_a_gpus_part_of_a_divided_target():
    """Llama-3.1-70B on four GPUs, by hand: 2 bytes of 70.55e9 parameters, of which tensor
    parallelism leaves the 2 × 128,256 × 8,192 of embedding and LM head whole; the draft model's
    8.03e9 lie on the first GPU; caches of 160 and 64 KiB a token."""
    of_four = (
        "pair=llama31_8b_70b method=sps engine.devices=4 decoding.max_new_tokens=512 task=gsm8k"
    )
    divided, layered = (on_gpus(of_four, f"engine.parallel={how}") for how in ("tensor", "layers"))
    tokens = 1024 + 512 + 6 + 1
    draft = 2 * 8030261248 + 2 * 65536 * tokens
    whole = 2 * 2 * 128256 * 8192
    rest = 2 * 70553706496 - whole + 2 * 163840 * tokens
    need = memory_of(divided, 1, {})
    assert on_fullest(need, divided) == pytest.approx(whole + rest / 4 + draft)
    assert on_fullest(memory_of(layered, 1, {}), layered) == pytest.approx(
        (whole + rest) / 4 + draft
    )


@pytest.mark.parametrize(
    ("lines", "machine", "fault"),
    [
        ("pair=llama31_8b_70b engine.parallel=tensor", "8x80", ""),
        ("pair=llama31_8b_70b engine.parallel=tensor", "1x80", "has 1; no number of its GPUs"),
        (
            "pair=llama31_8b_70b engine.parallel=tensor engine.devices=2",
            "8x80",
            "on one GPU, and machine=8x80 has 80.0 GB; give engine.parallel=tensor engine.devices=4",
        ),
        ("pair=qwen3_4b_32b", "1x80", ""),
        ("pair=qwen3_4b_32b", "2x48", "give engine.parallel=layers engine.devices=2"),
    ],
)
def test_what_fits_a_machine(lines, machine, fault):
    cell = on_gpus(lines, "method=sps task=gsm8k")
    said = misfit(cell, memory_of(cell, 1, {}), Machine.of(machine))
    assert fault in said and bool(said) == bool(fault)
    with pytest.raises(ConfigError, match=re.escape(fault)) if fault else nullcontext():
        check_fit([cell], machine)


def test_a_plan_names_gpus(tmp_path, capsys):
    """DropMatch's Table 6 on the paper's pairs, eight GPUs of 80 GB and one."""
    words = ["report=dropmatch_table6", "scale=paper", "dry_run=true", f"output.dir={tmp_path}"]
    assert main([*words, "machine=8x80"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "on 4 GPUs, 86.1 GB on the fullest" in text
    assert "machine=8x80: llama31_8b_70b, 20 cells: of 64 prompts together 43 fit" in text
    assert "torchrun --nproc-per-node 4 -m bench" in text
    assert main([*words, "machine=1x80"]) == 0
    text = capsys.readouterr().out
    assert "llama31_8b_70b, 20 cells: does not fit: engine.devices=4" in text
    assert "give engine.parallel=none engine.devices=1" in text
    tiny = ["pair=tiny", "method=ar", "n=1", "timed=0", f"output.dir={tmp_path}"]
    assert main([*tiny, "machine=1x1", "engine.device=cpu"]) == 0
