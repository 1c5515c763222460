"""`python -m bench.speed`, and the clocks of the phases of a cycle."""

from __future__ import annotations

import re

import pytest
import torch

from bench.run.models import NativeMethod
from bench.run.one_cell import open_cell
from bench.run.phases import PHASES, Phases
from bench.run.profiling import profile_of, profiles
from bench.speed import main
from methods.decode import Limits
from methods.engine.loading import load_model
from tasks.mini import MiniTask
from tests.helpers.decoding import method_on
from tests.helpers.tiny_heads import random_head

NEW = 6


@pytest.mark.parametrize(
    ("decoder", "dtype"), [("lean", "float32"), ("lean", "bfloat16"), ("transformers", "float32")]
)
def test_every_phase_takes_time_and_the_head_is_part_of_verify(pair_folder, decoder, dtype):
    """With a draft model and with a random EAGLE-3 head; oneDNN multiplies in float32 alone."""
    target, draft = (
        load_model(str(pair_folder / role), dtype=dtype, decoder=decoder)
        for role in ("target", "draft")
    )
    models = {"model": draft, "eagle3": random_head("eagle3", target, dtype=dtype)}
    methods = [
        NativeMethod(method_on(target, model, name, length=3)) for name, model in models.items()
    ]
    prompts = list(MiniTask("mini_gsm").prompts(1))
    for found in profiles(
        methods, prompts, Limits(NEW, frozenset()), lambda prompt, turn: "phases"
    ):
        assert found is not None and found.prompts == [found.phases], "one prompt"
        phases = found.phases
        assert set(phases) == {*PHASES, "head", "prefill", "cycle"}
        assert min(phases.values()) > 0 and phases["head"] < phases["verify"] < phases["cycle"]


def phases_of(*seconds: float) -> Phases:
    """A prompt whose cycles took so many seconds in each phase."""
    run = Phases(torch.device("cpu"))
    for name in (*PHASES, "prefill"):
        run.times[name] += seconds
    return run


def test_a_profile_is_the_mean_over_prompts_of_their_medians():
    profile = profile_of([phases_of(1.0, 1.0, 9.0), phases_of(2.0), Phases(torch.device("cpu"))])
    assert profile is not None and [one["draft"] for one in profile.prompts] == [1.0, 2.0]
    assert (profile.phases["draft"], profile.phases["cycle"]) == (1.5, 6.0), (
        "a prompt without a cycle has no phases"
    )
    assert profile_of([Phases(torch.device("cpu"))]) is None


def test_a_pair_beside_transformers(pair_folder, capsys):
    pair = f"pair.target={pair_folder / 'target'} pair.draft={pair_folder / 'draft'}"
    words = f"task=mini_gsm engine.threads=1 {pair} pair.eagle3=null --n 2 --new {NEW} --length 3"
    assert main(words.split()) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for said in (
        "autoregressive ÷ transformers.generate: ",
        "SpS ÷ transformers, assisted: ",
        "SpS ÷ autoregressive: ",
    ):
        assert said in printed, said
    tokens = re.findall(r"│ [^│]+ │ [\d.]+ │ (\d+) │", printed)
    assert len(tokens) == 4 and len({*tokens}) == 1, "greedy decoding gives every arm one answer"


def test_a_random_head_is_one_of_its_shape():
    shapes = "random:models/shapes/tiny"
    words = f"pair=local pair.target={shapes} pair.eagle3={shapes}_eagle3 method=eagle3"
    _, method = open_cell([*words.split(), "engine.device=cpu"])
    head = method.model
    assert torch.equal(head.to_target, torch.arange(512)) and head.model.t2d.sum() == 512
    assert float(head.model.fc.weight.std()) == pytest.approx(0.02, rel=0.05)
    assert torch.all(head.model.norm.weight == 1)
