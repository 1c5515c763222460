"""Shared by all tests: a small untrained pair on disk in the Hugging Face format, with tokenizer
and chat template."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import hypothesis
import nltk  # noqa: F401  its downloader writes to the stderr of its first import for ever: not to one test's
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from models.train.pair.tokenizer import save_tokenizer, train_tokenizer
from models.train.texts import corpus
from models.train.texts.phrase import plain
from tasks.sandbox import run as sandbox
from tests.helpers.tiny_models import SHAPE, changed_models, decided

pytest_plugins = ("tests.helpers.ci",)
torch.set_num_threads(1)
hypothesis.settings.load_profile("ci")  # the same examples each time, and no deadline
VOCAB = 320


@pytest.fixture(scope="session", autouse=True)
def machine_lock(tmp_path_factory):
    """The tests of this process, and the processes that they start, have a lock of their own in
    place of the machine's: they neither wait for what is measured beside them nor disturb it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEEWAY_LOCK", str(tmp_path_factory.mktemp("machine") / "lock"))
        yield


@pytest.fixture
def path(monkeypatch):
    """Sets PATH, on which bubblewrap is looked for."""

    def change(value: str) -> None:
        monkeypatch.setenv("PATH", value)
        sandbox.bubblewrap_fault.cache_clear()

    yield change
    monkeypatch.undo()
    sandbox.bubblewrap_fault.cache_clear()


@pytest.fixture(autouse=True)
def shared_models_stay():
    """A test that changes a model which other tests share fails, and they go on with another."""
    yield
    if changed := changed_models():
        pytest.fail(f"changes the weights of {', '.join(changed)}, which tests share: copy it")


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory) -> Path:
    """A folder with target/ and draft/: Llama, two layers and one, hidden size 32; and the shapes
    of heads, config.json alone. The draft is a noisy copy of the target's first layer, so that some
    of its tokens are accepted and some are not."""
    folder = tmp_path_factory.mktemp("pair")
    texts = [
        text
        for _, example in islice(corpus(0, {"mini_gsm": 1, "mini_chat": 1}), 50)
        for text in (*example.turns, *map(plain, example.phrases))
    ]
    tokenizer = train_tokenizer(texts, VOCAB)
    for name in ("target", "draft"):
        save_tokenizer(tokenizer, folder / name)
    ids = AutoTokenizer.from_pretrained(folder / "target")
    torch.manual_seed(0)
    shape = SHAPE | {
        "vocab_size": len(ids),
        "tie_word_embeddings": True,
        "eos_token_id": ids.eos_token_id,
        "pad_token_id": ids.pad_token_id,
        "bos_token_id": None,
    }
    target = LlamaForCausalLM(LlamaConfig(**shape, num_hidden_layers=2))
    draft = LlamaForCausalLM(LlamaConfig(**shape, num_hidden_layers=1))
    decided(target, 0.3)
    kept = {name: weight for name, weight in target.state_dict().items() if "layers.1" not in name}
    draft.load_state_dict(kept)
    target.save_pretrained(folder / "target")
    draft.save_pretrained(folder / "draft")
    layer = {key: shape[key] for key in shape if "num" in key or "size" in key} | {"bias": False}
    for head in ("eagle3", "eagle", "hass", "medusa"):
        more = {"draft_vocab_size": 160} if head == "eagle3" else {}
        (folder / head).mkdir()
        (folder / head / "config.json").write_text(json.dumps(layer | more))
    return folder
