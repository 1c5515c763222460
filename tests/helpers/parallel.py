"""Runs of `python -m bench` in processes of their own, and what must be equal between one and
several of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from bench.config.paths import PROJECT
from bench.run.timed import NEAR_TIE, before
from methods.engine.language_model import LanguageModel
from methods.engine.margin import next_logits, top2_margin
from results.store.cells import Store
from results.store.sample import Sample
from tasks.base import Prompt

Key = tuple[str, str]
"""Names of a cell and of a prompt."""


def torchrun(overrides: Sequence[str], folder: Path, processes: int) -> subprocess.Popen[str]:
    """A command on its own store, by torchrun in so many processes."""
    folder.mkdir(exist_ok=True)
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
    places = f"store.dir={folder / 'store'}", f"output.dir={folder / 'out'}"
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "bench", *overrides, *places],
        cwd=PROJECT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "LEEWAY_LOCK": str(folder / "lock")},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def samples_of(root: Path) -> dict[Key, Sample]:
    """Cell and prompt -> sample; nothing has failed."""
    samples = {}
    for cell in Store(root).cells():
        assert len(cell.good_samples()) == len(cell.samples())
        samples |= {(cell.key, sample.id): sample for sample in cell.good_samples()}
    return samples


def assert_same_tokens(
    samples: Mapping[Key, Sample],
    expected: Mapping[Key, Sample],
    target: LanguageModel,
    prompts: Mapping[str, Prompt],
):
    """The tokens are equal, or part where the target's two largest logits are nearly tied."""
    assert samples.keys() == expected.keys() and samples
    for key, sample in samples.items():
        ids, other = sample.output_ids, expected[key].output_ids
        if ids != other:
            at = next(
                place for place, (one, two) in enumerate(zip_longest(ids, other)) if one != two
            )
            context = before(target, prompts[sample.id], sample, at)
            assert top2_margin(next_logits(target, context)) < NEAR_TIE, (key, at)
