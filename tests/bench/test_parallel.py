"""One target on several devices, here processes on the CPU: the tokens of one process, whatever
drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.config.cell import Cell
from bench.config.compose import composer
from bench.config.paths import TINY
from methods.engine.loading import load_model
from results.store.cells import Store
from tests.helpers.parallel import assert_same_tokens, samples_of, started

TWO = ("engine.parallel=tensor", "engine.devices=2")
SHORT = ("task=mini_gsm", "n=1", "decoding.max_new_tokens=12")


@pytest.fixture(scope="module")
def prompts() -> dict:
    with composer() as hydra:
        cell = hydra.point(SHORT).cell
    return {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}


@pytest.mark.slow
def test_two_processes_decode_the_tokens_of_one(command, prompts, tmp_path: Path) -> None:
    """A chain of a draft model, and a tree of a head that reads states of the target; only rank 0
    prints."""
    given = ["-m", "pair=tiny", *SHORT, "method=sps,eagle3", "timed=0"]
    two = started([*given, *TWO], tmp_path / "two", torchrun=2)
    assert (
        command(
            *given[1:], "engine.decoder=transformers", flags=["-m"], store=tmp_path / "one"
        ).status
        == 0
    )
    out, err = two.communicate()
    assert two.returncode == 0 and out.count("quality pass: ") == 1, err
    target = load_model(str(TINY / "target"))
    assert_same_tokens(
        samples_of(tmp_path / "two" / "store"), samples_of(tmp_path / "one"), target, prompts
    )
    for cell in Store(tmp_path / "two" / "store").cells():
        assert cell.environment()["parallel"] == {"mode": "tensor", "devices": 2}


def test_a_result_depends_on_the_decoder_not_on_the_number_of_devices() -> None:
    with composer() as hydra:
        one, layers, modules, tensor = (
            Cell.parsed(hydra.point(["pair=tiny", *more]).config)
            for more in (
                [],
                ["engine.parallel=layers", "engine.devices=2"],
                ["engine.decoder=transformers"],
                TWO,
            )
        )
    assert (layers.name, tensor.name) == (one.name, modules.name) and one.name != modules.name
    assert one.group_key != layers.group_key and modules.group_key != tensor.group_key, (
        "but its times do"
    )
