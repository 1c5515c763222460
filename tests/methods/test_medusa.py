"""Medusa: the official file formats, the draft it makes of them, and greedy equality and exactness in the loop."""

from __future__ import annotations

import copy
import json
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import chisquare

from methods.decode import Limits, Request, generate
from methods.drafters.medusa import MedusaDrafter
from methods.engine.source import ModelError
from methods.heads.medusa import MedusaHeads, load_medusa
from methods.method import build_method
from methods.rules.lossless import Lossless
from methods.rules.typical import Typical
from methods.sampling import Sampling
from methods.trees import static
from tests.helpers.fitted_heads import fitted_medusa
from tests.helpers.tiny_models import VOCAB, language_model, prompts

NEW = 24
COLD = Sampling(0.0)


@cache
def target_and_heads(kind: str):
    target = language_model(kind, layers=3)
    return target, fitted_medusa(target, prompts(6), new=NEW)


def medusa(kind="llama", rule=None, tree="medusa_63", sampling=COLD):
    return build_method(*target_and_heads(kind), MedusaDrafter(tree=tree), rule or Lossless(), sampling, 4)


def run(method, rows, batch, new=NEW):
    out = []
    for at in range(0, len(rows), batch):
        requests = [Request(ids, f"0/test/{at + i}") for i, ids in enumerate(rows[at:at + batch])]
        out += generate(method, requests, Limits(new, frozenset()))
    return out


def of_transformers(target, ids):
    twin = copy.deepcopy(target.model)
    twin.set_attn_implementation("eager")
    out = twin.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False,
                        attention_mask=torch.ones(1, len(ids), dtype=torch.long))
    return out[0, len(ids):].tolist()


@pytest.mark.parametrize("kind,tree", [("llama", "medusa_63"), ("qwen3", "small_10"), ("gemma2", "medusa_63")])
def test_greedy_equals_transformers(kind, tree):
    rows, method = prompts(3) + prompts(3, seed=9), medusa(kind, tree=tree)  # fitted to the first three, not the others
    want = [of_transformers(method.target, ids) for ids in rows]
    for batch in (1, 5):
        found = run(method, rows, batch)
        assert [g.output_ids for g in found] == want
        accepted = [a for g in found for a in g.accepted]
        assert max(accepted) == 4 and min(accepted) == 0
        fitted = [a for g in found[:3] for a in g.accepted]
        assert sum(fitted) > 2 * len(fitted)  # so they read the right states


def test_a_chain_of_guesses(tmp_path):
    """A tree without branches commits a prefix; a chain of second guesses is one too, and rarely right."""
    rows, want = prompts(3), [g.output_ids for g in run(medusa(), prompts(3), 1)]
    for words, right in (("0 0.0 0.0.0", True), ("1 1.0", False)):
        (tmp_path / "chain.yaml").write_text(f"source: test\npaths: {words}\n")
        static.load.cache_clear()
        found = run(medusa(tree=str(tmp_path / "chain.yaml")), rows, 3)
        assert [g.output_ids for g in found] == want
        accepted = [a for g in found for a in g.accepted]
        assert (sum(accepted) > len(accepted)) == right


def test_batches_and_temperature_change_nothing_else():
    method = medusa(rule=Typical(), sampling=Sampling(0.8))
    rows = prompts(5)
    alone = run(method, rows, 1)
    assert [g.output_ids for g in run(method, rows, 5)] == [g.output_ids for g in alone]
    for g in alone:
        assert len(g.output_ids) == NEW == 1 + sum(g.committed) and max(g.accepted) <= 4
    assert sum(g.relaxed for g in alone) > 0


@pytest.mark.slow
@pytest.mark.parametrize("rule,exact", [(Lossless(), True), (Lossless(q_mode="draft"), False)], ids=["exact", "draft"])
def test_the_law_is_the_targets(rule, exact, tmp_path):
    """Joint law of three tokens against exact enumeration; p/q for deterministic candidates is detected."""
    vocab, draws, prompt, sampling = 5, 24_000, [1, 2, 3, 1], Sampling(0.8, top_p=0.97)
    target = language_model("llama", layers=2, seed=1, vocab=vocab)
    target = copy.deepcopy(target)
    with torch.no_grad():
        target.model.lm_head.weight.mul_(0.15)  # flatter, so that every sequence has a fair share of the draws
    tree = tmp_path / "bush.yaml"
    tree.write_text("source: test\npaths: 0 1 2 0.0 0.1 1.0 2.0 0.0.0\n")
    heads = fitted_medusa(target, prompts(8, vocab=vocab), new=12, heads=3)
    method = build_method(target, heads, MedusaDrafter(tree=str(tree)), rule, sampling, 3)
    paths = list(product(range(vocab), repeat=3))
    ids = torch.tensor([prompt + list(path) for path in paths])
    with torch.inference_mode():
        p = sampling.probs(target.model(ids, use_cache=False).logits[:, len(prompt) - 1:-1]).double()
    expected = p.gather(-1, ids[:, len(prompt):, None])[..., 0].prod(-1).numpy() * draws
    index, counts = {path: i for i, path in enumerate(paths)}, np.zeros(len(paths))
    for start in range(0, draws, 2000):
        requests = [Request(prompt, f"0/law/{start + i}") for i in range(2000)]
        for g in generate(method, requests, Limits(3, frozenset())):
            counts[index[tuple(g.output_ids)]] += 1
    assert counts[expected == 0].sum() == 0
    common = expected >= 10
    observed, wanted = (np.append(x[common], x[~common].sum()) for x in (counts, expected))
    keep = wanted > 0
    found = chisquare(observed[keep], wanted[keep] * observed[keep].sum() / wanted[keep].sum()).pvalue
    assert found > 1e-4 if exact else found < 1e-12


def test_the_draft_is_the_heads_best_guesses():
    """Tokens, q and logits of every node from the formula, in float64."""
    target, model = target_and_heads("llama")
    heads = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in heads.model.parameters():  # blocks that are not the identity
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    method = build_method(target, heads, MedusaDrafter(), Lossless(q_mode="draft"), Sampling(1.0), 4)
    rows = [[3, 1], [2, 9, 4]]
    proposer = method.drafter.start(target, heads, method.draft, rows, 64)
    states = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    proposer.on_features(states, [[0, 2, 4], [1]])
    draft = proposer.propose(rows, torch.zeros(2, 0))
    tree = static.load("medusa_63")
    for row, at in enumerate((4, 1)):
        x = states[row, at].double()
        guesses = []
        for head in heads.model.double():
            y = x + torch.nn.functional.silu(head[0].linear.weight @ x + head[0].linear.bias)
            guesses.append(head[1].weight @ y)
        assert draft.tokens[row, 0] == rows[row][-1] and draft.q[row, 0] == 1
        for i in range(1, tree.nodes):
            z = guesses[tree.depth[i] - 1]
            assert draft.tokens[row, i] == z.argsort(descending=True)[tree.ranks[i]]
            assert float(draft.q[row, i]) == pytest.approx(float(z.softmax(-1)[draft.tokens[row, i]]), abs=1e-6)
            torch.testing.assert_close(draft.logits[row, tree.parents[i]].double(), z, atol=1e-4, rtol=1e-4)
    assert draft.parents.tolist() == [list(tree.parents)] and draft.depth.tolist() == [list(tree.depth)]


def checkpoint(folder, tensors, file="medusa_lm_head.pt"):
    folder.mkdir(exist_ok=True)
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "org/model"}
    (folder / "config.json").write_text(json.dumps(config))  # the published files say 2 where they hold 5
    path = folder / file
    torch.save(tensors, path) if path.suffix in (".pt", ".bin") else save_file(tensors, path)
    return str(folder)


def tensors_of(heads=5, layers=1, size=32, vocab=VOCAB):
    torch.manual_seed(0)
    return {name: tensor.clone() for name, tensor in MedusaHeads(heads, size, vocab, layers).state_dict().items()}


def test_official_names():
    assert set(tensors_of(2)) == {"0.0.linear.weight", "0.0.linear.bias", "0.1.weight",
                                  "1.0.linear.weight", "1.0.linear.bias", "1.1.weight"}
    assert "0.1.linear.bias" in tensors_of(1, layers=2) and "0.2.weight" in tensors_of(1, layers=2)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors", "model.safetensors"])
def test_official_files(tmp_path, file, layers):
    given = tensors_of(layers=layers)
    written = dict(given)
    if file == "model.safetensors":  # Medusa-2: heads and backbone in one checkpoint
        written = {f"medusa_head.{name}": tensor for name, tensor in given.items()}
        written["lm_head.weight"] = torch.ones(3, 2)
    found = load_medusa(checkpoint(tmp_path / "heads", written, file), language_model())
    assert len(found.model) == 5 and found.model.layers == layers
    assert found.vocab_size == VOCAB and found.full_vocabulary
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, given[name])


@pytest.mark.parametrize("change,said", [
    (lambda t: t.pop("3.0.linear.bias"), "missing 3.0.linear.bias"),
    (lambda t: [t.pop(name) for name in list(t) if name.startswith("2.")], "missing 2.0.linear.bias, 2.0"),
    (lambda t: t.update({"extra.weight": torch.ones(2)}), "unexpected extra.weight"),
    (lambda t: t.update({"1.0.linear.bias": torch.ones(2)}), "1.0.linear.bias 2 instead of 32"),
    (lambda t: t.clear() or t.update({"fc.weight": torch.ones(2)}), "no Medusa heads"),
])
def test_what_does_not_fit_is_named(tmp_path, change, said):
    tensors = tensors_of()
    change(tensors)
    with pytest.raises(ModelError) as error:
        load_medusa(checkpoint(tmp_path / "heads", tensors), language_model())
    assert said in str(error.value) and "\n" not in str(error.value)


def test_heads_of_another_target_are_refused(tmp_path):
    with pytest.raises(ModelError, match="made for a target of hidden size 16 and vocabulary 64"):
        load_medusa(checkpoint(tmp_path / "a", tensors_of(size=16)), language_model())
    with pytest.raises(ModelError, match="vocabulary 99"):
        load_medusa(checkpoint(tmp_path / "b", tensors_of(vocab=99)), language_model())


def test_a_shape_alone_gives_random_heads(tmp_path):
    source = f"random:{checkpoint(tmp_path / 'heads', tensors_of(3))}"
    assert len(load_medusa(source, language_model()).model) == 3
    (tmp_path / "heads" / "medusa_lm_head.pt").unlink()
    found = load_medusa(source, language_model()).model
    assert len(found) == 2 and found[0][-1].weight.std() > 0  # config.json says 2


def test_a_tree_deeper_than_the_heads_is_refused():
    with pytest.raises(ModelError, match="eagle_25 is 5 tokens deep and fitted has 4 heads"):
        medusa(tree="eagle_25")


def test_training_begins_as_the_targets_own_head():
    target = language_model()
    weight = target.model.lm_head.weight.detach()
    heads = MedusaHeads(3, 32, VOCAB, layers=2).start_from(weight)
    x = torch.randn(4, 7, 32)
    found = heads(x)
    assert found.shape == (3, 4, 7, VOCAB)
    torch.testing.assert_close(found[2], x @ weight.T)
    assert heads(x, 1).shape[0] == 1
