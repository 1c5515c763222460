"""The clocks that stand in for functions of the decoder, and the hooks on the LM head, with whatever runs a forward."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from bench.run.lab import LabMethod
from bench.run.timed_pass.profiling import PHASES, Phases, profile_of, profiles
from bench.vs_transformers import ForwardClock, VsTransformers, eagle3_head, forward_of, main, overhead
from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.loading import load_model
from methods.method import Method, build_method
from methods.sampling import Sampling
from tasks.mini import MiniTask

RUNS = [("lean", "float32"), ("lean", "bfloat16"), ("transformers", "float32")]
"""Decoder and numeric type: oneDNN multiplies in float32 alone."""
NEW = 6


def methods_of(folder: Path, decoder: str, dtype: str) -> dict[str, tuple[Method, list[tuple[object, str]]]]:
    """Drafter -> a method with it, and what drafts in it, as the command clocks it."""
    target, draft = (load_model(str(folder / role), dtype=dtype, decoder=decoder) for role in ("target", "draft"))
    options = VsTransformers(target="", draft="", eagle3=Path("none"), n=1, length=3, new=NEW, dtype=dtype, threads=1,
                             before=None, out=None)
    head = eagle3_head(options, target)
    drafting = {"model": [forward_of(draft)],
                "eagle3": [(head, "step"), (head.model, "fuse"), (head, "logits")]}
    return {name: (build_method(target, model, registry.drafter(name)(), registry.rule("greedy")(), Sampling(0.0), 3),
                   drafting[name]) for name, model in (("model", draft), ("eagle3", head))}


@pytest.mark.parametrize(("decoder", "dtype"), RUNS)
def test_every_clocked_function_takes_time_and_changes_no_token(pair_folder: Path, decoder: str, dtype: str) -> None:
    prompt = [5, 6, 7, 8, 5, 6]
    for name, (method, drafting) in methods_of(pair_folder, decoder, dtype).items():
        limits, request = Limits(NEW, frozenset()), Request(prompt, "speed")
        plain = generate(method, [request], limits)[0].output_ids
        for place in (forward_of(method.target), *drafting):
            clock = ForwardClock(place)
            assert generate(method, [request], limits)[0].output_ids == plain
            clock.remove()
            assert clock.seconds > 0, (name, place[1])
        assert 0 < overhead(method, [prompt], NEW, drafting) < 1
        assert generate(method, [request], limits)[0].output_ids == plain


@pytest.mark.parametrize(("decoder", "dtype"), RUNS)
def test_every_phase_takes_time_and_the_head_is_part_of_verify(pair_folder: Path, decoder: str, dtype: str) -> None:
    methods = [LabMethod(method) for method, _ in methods_of(pair_folder, decoder, dtype).values()]
    prompts = list(MiniTask("mini_gsm").prompts(1))
    for found in profiles(methods, prompts, Limits(NEW, frozenset()), lambda prompt, turn: "phases"):
        assert found is not None and found.prompts == [found.phases], "one prompt"
        phases = found.phases
        assert set(phases) == {*PHASES, "head", "prefill", "cycle"}
        assert min(phases.values()) > 0 and phases["head"] < phases["verify"] < phases["cycle"]


def test_a_replayed_forward_has_no_share_of_the_head() -> None:
    """The hooks on the head are not part of a replay."""
    found = profile_of([phases_of(0.5)])
    assert found is not None and found.phases == {**dict.fromkeys((*PHASES, "prefill"), 0.5), "cycle": 2.0}


def phases_of(*seconds: float) -> Phases:
    """A prompt whose cycles took so many seconds in each phase."""
    run = Phases(torch.device("cpu"))
    for name in (*PHASES, "prefill"):
        run.times[name] += seconds
    return run


def test_a_profile_is_the_mean_over_prompts_of_their_medians() -> None:
    found = profile_of([phases_of(1.0, 1.0, 9.0), phases_of(2.0), Phases(torch.device("cpu"))])
    assert found is not None and [one["draft"] for one in found.prompts] == [1.0, 2.0]
    assert (found.phases["draft"], found.phases["cycle"]) == (1.5, 6.0), "a prompt without a cycle has no phases"
    assert profile_of([Phases(torch.device("cpu"))]) is None


def test_the_command_on_a_checkout_against_itself(pair_folder: Path, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"target": pair_folder / "target", "draft": pair_folder / "draft", "eagle3": pair_folder / "none",
                 "n": 2, "new": NEW, "length": 3, "threads": 1, "before": Path(), "out": tmp_path / "kept"}
    assert main([word for key, value in arguments.items() for word in (f"--{key}", str(value))]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("transformers.generate", "this engine, autoregressive", "transformers, assisted", "before, SpS",
                  "this engine, EAGLE-3", "SpS ÷ transformers assisted: ", "autoregressive ÷ before: ",
                  "outside the models' forwards, EAGLE-3, 24 nodes: "):
        assert words in printed, words
    kept = (tmp_path / "kept" / "README.md").read_text(encoding="utf-8")
    assert printed in " ".join(kept.split()) and (tmp_path / "kept" / "environment.json").is_file()


def test_a_pair_beside_other_engines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["pair=tiny", "task=mini_gsm", "engine.threads=1", "--n", "2", "--new", str(NEW), "--repeats", "1",
                 "--out", str(tmp_path / "kept")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("÷ one token", "transformers, assisted", "autoregressive ÷ transformers.generate: ",
                  "SpS, K = 3 ÷ transformers, assisted: ", "EAGLE-3, tree ÷ autoregressive: "):
        assert words in printed, words
    rows = re.findall(r"│ ([^│]+) │ [\d.]+ │ (\d+) │", printed)
    assert len(rows) == 6 and len({tokens for _, tokens in rows}) == 1, "greedy decoding gives every arm one answer"
    assert printed in " ".join((tmp_path / "kept" / "README.md").read_text(encoding="utf-8").split())
