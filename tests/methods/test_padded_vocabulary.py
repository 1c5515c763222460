"""Target and draft of one tokenizer whose embeddings are padded to different sizes share the tokens that both have."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer

from bench.config.compose import composer
from bench.run.models import ModelPool
from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.language_model import LanguageModel
from methods.engine.texts import shared_rows
from methods.method import autoregressive, build_method
from methods.sampling import Sampling
from tests.helpers.tiny_models import VOCAB, language_model, prompts


def padded(rows: int, seed: int) -> LanguageModel:
    """A model whose last rows pad: large weights, so that they would be drawn if they could."""
    return language_model(vocab=VOCAB + rows, seed=seed)


@pytest.mark.parametrize(("ours", "theirs", "largest", "rows"), [
    (16, 0, VOCAB, VOCAB), (0, 16, VOCAB, VOCAB), (16, 8, VOCAB, VOCAB + 8), (8, 8, VOCAB, None),
    (16, 0, VOCAB + 1, None)])
def test_what_two_vocabularies_share(ours: int, theirs: int, largest: int, rows: int | None) -> None:
    target, draft = (SimpleNamespace(vocab_size=VOCAB + pad, tokenizer=SimpleNamespace(
        get_vocab=lambda: {"last": largest - 1})) for pad in (ours, theirs))
    assert shared_rows(target, draft) == rows


@pytest.mark.parametrize(("ours", "theirs"), [(16, 0), (0, 16)])
def test_greedy_decoding_is_that_of_the_target_without_its_padding(ours: int, theirs: int) -> None:
    target, draft = padded(ours, 0).narrowed(VOCAB), padded(theirs, 1).narrowed(VOCAB)
    requests = [Request(ids, str(i)) for i, ids in enumerate(prompts(4))]
    drafter, limits = registry.drafter("model")(), Limits(16, frozenset())
    method = build_method(target, draft, drafter, registry.rule("greedy")(), Sampling(0.0), 4)
    found = generate(method, requests, limits)
    alone = generate(autoregressive(target), requests, limits)
    assert [one.output_ids for one in found] == [one.output_ids for one in alone]
    for request, one in zip(requests, alone, strict=True):
        row = list(request.input_ids)
        with torch.no_grad():
            for token in one.output_ids:
                logits = target.model(torch.tensor([row]), use_cache=False).logits[0, -1, :VOCAB]
                assert token == int(logits.argmax())
                row.append(token)


def test_a_pair_of_two_sizes_is_accepted(pair_folder: Path, tmp_path: Path) -> None:
    """The command's own way: the draft of the pair with 64 more rows."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(pair_folder / "draft")
    size = model.get_input_embeddings().weight.shape[0]
    model.resize_token_embeddings(size + 64)
    model.save_pretrained(tmp_path / "draft")
    AutoTokenizer.from_pretrained(pair_folder / "draft").save_pretrained(tmp_path / "draft")
    with composer() as hydra:
        cell = hydra.point(["pair=local", f"pair.target={pair_folder / 'target'}", "method=sps",
                            f"pair.draft={tmp_path / 'draft'}", "task=mini_gsm"]).cell
        pool = ModelPool()
        method = pool.load(cell).method
        assert method.target.vocab_size == method.model.vocab_size == size
        assert pool.load(cell).method.model is method.model
