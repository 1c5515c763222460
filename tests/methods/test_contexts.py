"""What rules see, on file: a replay gives the numbers of the decode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from methods import registry
from methods.contexts import Contexts, ContextsError, Recorder
from methods.decode import Limits, Request
from methods.method import build_method
from methods.rules.lossless import Lossless
from methods.rules.verification import Verification
from methods.sampling import Sampling
from methods.screen import Screened, host, screened
from methods.trees.draft import Draft
from tests.helpers.tiny_heads import OPTIONS, model_for
from tests.helpers.tiny_models import VOCAB, language_model, prompts

RULES = {
    "lossless": ("lossless", {}),
    "mars": ("mars", {"variant": "sampling", "theta": 0.5}),
    "tilted": ("tilted", {"lam": 0.3}),
    "fsd": ("fsd", {"divergence": "js", "threshold": 0.1}),
    "ears": ("ears", {"tolerance": 0.5}),
}
SAID: dict[str, Any] = {
    "vocab": VOCAB,
    "target": "here",
    "draft": None,
    "fingerprints": {},
    "task": "none",
    "code": "sha256:0",
}
Screens = dict[str, Screened]


def recorded(file: Path, drafter: str, top: int) -> Screens:
    """Screen a decode live and record it."""
    target = language_model(layers=3)
    drafts = registry.drafter(drafter)(**OPTIONS.get(drafter, {}))
    limits = Limits(20, frozenset(range(0, VOCAB, 16)))
    model = model_for(drafter, target)
    method = build_method(target, model, drafts, Lossless(), Sampling(1.0), 4)
    hosting = host(
        method, [build_method(target, model, drafts, Lossless(q_mode="draft"), Sampling(1.0), 4)]
    )
    rules = rules_for(drafter)
    requests = [Request(ids, f"0/contexts/{place}") for place, ids in enumerate(prompts(4))]
    recorder = Recorder(top)
    found: Screens = {name: Screened(torch.zeros(0, 3).double()) for name in rules}
    for start in (0, 2):
        some = requests[start : start + 2]
        recorder.begin(some, [start, start + 1])
        generations, screens = screened(hosting, rules, some, limits, [recorder])
        recorder.end(generations)
        for name, screen in screens.items():
            found[name].rows = torch.cat([found[name].rows, screen.rows])
    recorder.write(file, hosting.sampling, limits, **SAID)
    return found


def rules_for(drafter: str) -> dict[str, Any]:
    chains = {"ears"} if drafter != "model" else set()
    return {
        name: registry.rule(rule)(**options)
        for name, (rule, options) in RULES.items()
        if name not in chains
    }


@pytest.mark.parametrize("drafter", ["model", "eagle3"])
def test_with_all_logits_a_replay_gives_the_numbers_of_the_decode(
    tmp_path: Path, drafter: str
) -> None:
    live = recorded(tmp_path / "all.safetensors", drafter, 0)
    contexts = Contexts(tmp_path / "all.safetensors")
    again = contexts.screened(
        {name: contexts.bound(rule) for name, rule in rules_for(drafter).items()}
    )
    for name, screen in live.items():
        assert torch.allclose(again[name].rows, screen.rows, atol=1e-5, equal_nan=True), name


def test_with_the_largest_logits_a_replay_is_near(tmp_path: Path) -> None:
    """An untrained target is the hardest case: half of its mass lies outside of 64 of 256."""
    live = recorded(tmp_path / "top.safetensors", "eagle3", 64)
    contexts = Contexts(tmp_path / "top.safetensors")
    again = contexts.screened(
        {name: contexts.bound(rule) for name, rule in rules_for("eagle3").items()}
    )
    assert again["lossless"].rows[:, 1].abs().max() < 1e-3
    for name in ("lossless", "mars", "tilted"):
        kept, known = again[name].rows[:, 0].sum(), live[name].rows[:, 0].sum()
        assert abs(kept / known - 1) < 0.02, name


def test_the_mass_outside_is_kept(tmp_path: Path) -> None:
    """Three contexts by hand: the largest logit, a drafted token, and the mass of two others."""
    from methods.contexts import Logits

    z = torch.tensor([[[2.0, 1.0, 0.0, -1.0], [0.5, 0.0, 3.0, 1.0]]])
    draft = Draft.of_chain(torch.tensor([[0, 2]]))
    v = Verification(draft, z, Sampling(1.0), torch.zeros(1, 2))
    again = Logits.of(z, v, 1).dense(draft, 4)
    p = torch.tensor([[2.0, 1.0, 0.0, -1.0]]).softmax(-1)[0]
    others = (p[1] + p[3]) / 2
    assert torch.allclose(
        again[0, 0].softmax(-1), torch.stack([p[0], others, p[2], others]), atol=1e-6
    )


def test_what_a_file_cannot_give_is_said(tmp_path: Path) -> None:
    recorded(tmp_path / "top.safetensors", "eagle3", 8)
    contexts = Contexts(tmp_path / "top.safetensors")
    with pytest.raises(ContextsError, match="hidden states"):
        contexts.bound(registry.rule("dropmatch")())


@pytest.mark.parametrize("damage", ["cut", "foreign", "lacks", "format", "token", "shape"])
def test_a_bad_file_is_one_line(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "some.safetensors"
    recorded(file, "model", 8)
    description = Contexts(file).description
    tensors = load_file(file)
    metadata = {"leeway": description.model_dump_json()}
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "foreign":
        save_file(tensors, file, {"format": "pt"})
    elif damage == "lacks":
        save_file({name: x for name, x in tensors.items() if name != "target.rest"}, file, metadata)
    elif damage == "format":
        later = description.model_copy(update={"format": 99})
        save_file(tensors, file, {"leeway": later.model_dump_json()})
    elif damage == "token":
        tensors["tokens"][0, 0] = VOCAB
        save_file(tensors, file, metadata)
    elif damage == "shape":
        tensors["kept"] = tensors["kept"][:, :-1].contiguous()
        save_file(tensors, file, metadata)
    with pytest.raises(ContextsError) as caught:
        Contexts(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)
