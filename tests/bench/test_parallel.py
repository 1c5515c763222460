"""One target on several devices, here processes on the CPU: the tokens of one process, whatever
drafts."""

import os
import subprocess
import sys

import pytest

from bench.config.paths import PROJECT
from results.store.cells import Store
from tests.helpers.stores import decoded

WORDS = "-m pair=tiny task=mini_gsm n=1 decoding.max_new_tokens=12 method=sps,eagle3 timed=0"
TWO = "engine.parallel=tensor engine.devices=2"
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node=2 -m bench"


@pytest.mark.slow
def test_two_processes_decode_the_tokens_of_one(command, tmp_path):
    """A chain of a draft model, and a tree of a head that reads states of the target; only rank 0
    prints. No two logits are nearly tied."""
    two = tmp_path / "two"
    process = subprocess.Popen(
        [sys.executable, *f"{TORCHRUN} {WORDS} {TWO}".split(), f"store.dir={two}"],
        cwd=PROJECT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "LEEWAY_LOCK": str(tmp_path / "lock")},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    one = command(WORDS, "engine.decoder=transformers", store=tmp_path / "one").store
    out, err = process.communicate()
    assert process.returncode == 0 and out.count("quality pass: ") == 1, err
    assert decoded(two) == decoded(one.root)
    for cell in Store(two).cells():
        assert cell.environment()["parallel"] == {"mode": "tensor", "devices": 2}
