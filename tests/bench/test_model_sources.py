"""Models of other forms through the whole command: GGUF files, with the tokens of `transformers.generate`
and a record of what was measured; and draft models cut out of their target."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from bench.config.paths import PROJECT
from bench.dry_run.downloads import config_folder
from methods.decode import Limits, Request, generate
from methods.engine import gguf, user_cache
from methods.engine.loading import load_cut, load_model
from methods.engine.source import PACKAGE
from methods.heads.head import load_eagle3
from tasks.mini import MiniTask
from tests.helpers.decoding import generated, method_on
from tests.helpers.tiny_gguf import write_gguf
from tests.helpers.tiny_models import save_cut


@pytest.fixture
def file(tmp_path, pair_folder, monkeypatch) -> Path:
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "tiny.gguf", pair_folder / "target")
    return tmp_path / "tiny.gguf"


def stock(file: Path) -> PreTrainedModel:
    """The file as transformers itself reads it."""
    return AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()


def test_greedy_output_is_that_of_generate(command, file):
    result = command(f"pair=local pair.target={file} method=ar n=5")
    assert result.err.startswith("tiny.gguf: converting to float32, once, into ")
    model, tokenizer = stock(file), AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    samples = {sample.id: sample for sample in result.cell.samples()}
    for prompt in MiniTask("mini_gsm").prompts(5):
        talk = [{"role": "user", "content": prompt.turns[0]}]
        ids = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
        assert samples[prompt.id].output_ids == generated(model, ids, 12)
    digest = user_cache.sha256(file)
    environment = result.cell.environment()
    assert environment["models"] == {"target": digest} and environment["packages"]["gguf"]
    said = f"tiny.gguf, tensors: 15 Q4_1, 5 F32, SHA-256 {digest}"
    assert environment["dequantised"] == {"target": said}


def test_a_dry_run_converts_nothing(command, file):
    words = f"pair=local pair.target={file} method=pld dry_run=true"
    assert "not converted yet" in " ".join(command(words).out.split())
    assert not (file.parent / "cache" / "gguf2").exists()
    gguf.converted(file)
    config_folder.cache_clear()
    name = "local-prompt_lookup-lossless-mini_gsm-"  # with the model's fingerprint
    assert name in command(words).out


LEAST_ACCEPTED = {"eagle3": 0.5, "model": 0.2}
"""Draft tokens per cycle that the shipped drafters at least get right: one given wrong states gets
none."""
NEW = 32


@pytest.mark.slow
def test_the_real_model_decodes_as_generate_does(hydra):
    """Two prompts, token by token, with each of the drafters made for it."""
    pair = hydra.pair(["pair=smollm2"])
    file = user_cache.package_file(pair.target.source.removeprefix(PACKAGE))
    if not file.is_file():
        pytest.skip(
            "no weights of pair=smollm2 in the cache: any command with pair=smollm2 fetches them"
        )
    target, theirs = load_model(pair.target.source, revision=pair.target.revision), stock(file)
    with gzip.open(PROJECT / "tasks/data/gsm8k/test.jsonl.gz", "rt", encoding="utf-8") as lines:
        asked = ["What is the capital of France?", json.loads(next(lines))["question"]]
    prompts = [target.encode([{"role": "user", "content": text}]) for text in asked]
    expected = [generated(theirs, ids, NEW) for ids in prompts]
    assert "rance" in target.decode(expected[0]), "it has learnt something"
    requests, limits = [Request(ids, "key") for ids in prompts], Limits(NEW, target.eos_ids)
    models = {
        "eagle3": load_eagle3(pair.checkpoint("eagle3").source, target),
        "model": load_cut(pair.checkpoint("draft").source, target),
    }
    for name, model in models.items():
        runs = generate(method_on(target, model, name, "lossless", length=5), requests, limits)
        assert [run.output_ids for run in runs] == expected, name
        accepted = [count for run in runs for count in run.accepted]
        assert sum(accepted) / len(accepted) > LEAST_ACCEPTED[name], (name, accepted)


def test_a_cut_runs_by_itself_if_it_names_its_target(command, pair_folder, tmp_path):
    """One of the target's layers, and one of its own that starts as the target's last. As
    pair.target it is loaded with the target that its config.json names."""
    target = load_model(str(pair_folder / "target"))
    cut = save_cut(tmp_path / "cut", target, shared=1)
    result = command(f"pair.target={cut} method=ar n=3")
    alone = load_cut(str(cut), target)
    measured = {sample.id: sample.output_ids for sample in result.cell.samples()}
    for prompt in MiniTask("mini_gsm").prompts(3):
        ids = alone.encode([{"role": "user", "content": prompt.turns[0]}])
        [answer] = generate(method_on(alone), [Request(ids, "key")], Limits(12, alone.eos_ids))
        assert measured[prompt.id] == answer.output_ids
    config = json.loads((cut / "config.json").read_text())
    del config["target"]
    (cut / "config.json").write_text(json.dumps(config))
    command(f"pair.draft={cut} method=sps n=1")
    [line] = command(f"pair.target={cut} method=ar n=1", status=2).err.splitlines()
    assert "a cut of its target, which its config.json does not name" in line
