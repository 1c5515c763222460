"""One target on several devices, here processes on the CPU: the tokens of one process, whatever
drafts."""

import pytest

from bench.config.cell import Cell
from bench.config.paths import TINY
from methods.engine.loading import load_model
from results.store.cells import Store
from tasks.mini import MiniTask
from tests.helpers.parallel import assert_same_tokens, samples_of, torchrun

TWO = "engine.parallel=tensor engine.devices=2"
SHORT = "task=mini_gsm n=1 decoding.max_new_tokens=12"


@pytest.mark.slow
def test_two_processes_decode_the_tokens_of_one(command, tmp_path):
    """A chain of a draft model, and a tree of a head that reads states of the target; only rank 0
    prints."""
    words = f"-m pair=tiny {SHORT} method=sps,eagle3 timed=0"
    process = torchrun(f"{words} {TWO}".split(), tmp_path / "two", processes=2)
    one = command(words, "engine.decoder=transformers", store=tmp_path / "one").store
    out, err = process.communicate()
    assert process.returncode == 0 and out.count("quality pass: ") == 1, err
    target = load_model(str(TINY / "target"))
    [prompt] = MiniTask("mini_gsm").prompts(1)
    two = tmp_path / "two" / "store"
    assert_same_tokens(samples_of(two), samples_of(one.root), target, {prompt.id: prompt})
    for cell in Store(two).cells():
        assert cell.environment()["parallel"] == {"mode": "tensor", "devices": 2}


def test_a_result_depends_on_the_decoder_not_on_the_number_of_devices(hydra):
    layers = "engine.parallel=layers engine.devices=2"
    one, layers, modules, tensor = (
        Cell.parsed(hydra.point(["pair=tiny", *words.split()]).config)
        for words in ("", layers, "engine.decoder=transformers", TWO)
    )
    assert (layers.name, tensor.name) == (one.name, modules.name) and one.name != modules.name
    # but its times do
    assert one.group_key != layers.group_key and modules.group_key != tensor.group_key
