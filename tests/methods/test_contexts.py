"""What rules see, on file: a replay gives the numbers of the decode."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from methods import contexts as contexts_of_file
from methods import kept, registry
from methods.contexts import Contexts, ContextsError, Recorder
from methods.decode import Limits, Observer, generate
from methods.kept import Logits
from methods.rules.base import Rule
from methods.rules.lossless import Lossless
from methods.rules.verification import Verification
from methods.rules.walk import Decision, Walk
from methods.sampling import Sampling
from methods.screen import host, screened
from methods.trees.draft import Draft
from tests.helpers.tiny_heads import method_of, requests
from tests.helpers.tiny_models import VOCAB

RULES: dict[str, Rule] = {
    "lossless": Lossless(),
    "mars": registry.rule("mars")(variant="sampling", theta=0.5),
    "tilted": registry.rule("tilted")(lam=0.3),
    "fsd": registry.rule("fsd")(divergence="js", threshold=0.1),
}
SAID: dict[str, Any] = {
    "vocab": VOCAB,
    "target": "here",
    "draft": None,
    "fingerprints": {},
    "task": "none",
    "code": "sha256:0",
}


def recorded(file: Path, drafter: str, top: int) -> None:
    """Screen a decode of two batches and record it."""
    limits = Limits(20, frozenset(range(0, VOCAB, 16)))
    hosting = host(method_of(drafter), [method_of(drafter, Lossless(q_mode="draft"))])
    recorder, asked = Recorder(top), requests(4)
    for start in (0, 2):
        some = asked[start : start + 2]
        recorder.begin(some, [start, start + 1])
        generations, _ = screened(hosting, RULES, some, limits, [recorder])
        recorder.end(generations)
    recorder.write(file, hosting.sampling, limits, **SAID)


class Even(Lossless):
    """Looks at particular tokens."""

    def decide(self, v: Verification) -> Decision:
        return Decision((v.draft.tokens % 2 == 0) & (v.u < 0.7))


@pytest.mark.parametrize("drafter", ["model", "eagle3"])
def test_tokens_that_are_not_kept_may_be_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drafter: str
) -> None:
    """Where all others have one probability under target and draft, some of them stand for all: KL
    and every decision on p, q and ranks stay. What looks at particular tokens gets all of them."""
    for module in (kept, contexts_of_file):
        monkeypatch.setattr(module, "OTHERS", 12)  # this vocabulary has 64 tokens
    recorded(tmp_path / "top.safetensors", drafter, 16)
    contexts = Contexts(tmp_path / "top.safetensors")
    rules = RULES | {"even": Even()}
    assert contexts._needing_whole(rules) == {"even"}
    narrow = contexts.screened(rules)
    monkeypatch.setattr(contexts, "_needing_whole", set)
    whole = contexts.screened(rules)
    for name in rules:
        assert torch.allclose(narrow[name].rows, whole[name].rows, rtol=1e-4, atol=1e-3), name


class Eagle(Observer):
    """Gives what the loop of EAGLE's code holds in a round to the writer of the page."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def on_cycle(
        self,
        v: Verification,
        decision: Decision,
        path: Walk,
        token: Tensor,
        u: Tensor,
        requests: Sequence[int],
    ) -> None:
        nodes = path.kept[0].nonzero()[:, 0]
        ancestors = v.draft.ancestors[:, None].float()
        self.writer.cycle(v.draft.tokens, ancestors, v.logits, nodes, token[0])


def test_the_writer_for_eagle_of_the_page(tmp_path: Path) -> None:
    """Its file is that of the recorder, but for the draft's distribution, which EAGLE's loop does
    not hold."""
    page = (Path(__file__).parents[2] / "docs" / "screen.md").read_text()
    [code] = re.findall(r"<!-- writer -->\n```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    writer, recorder = names["Writer"](8), Recorder(8)
    method, limits = method_of("eagle3"), Limits(20, frozenset())
    for place, request in enumerate(requests(2)):
        recorder.begin([request], [place])
        [generation] = generate(method, [request], limits, observers=[recorder])
        recorder.end([generation])
        writer.begin(torch.tensor([request.input_ids]), generation.output_ids[0])
        generate(method, [request], limits, observers=[Eagle(writer)])
        writer.end(len(generation.output_ids))
    recorder.write(tmp_path / "own.safetensors", method.sampling, limits, **SAID)
    said = {"vocab": VOCAB, "max_new_tokens": 20, "ends": [], "target": "here", "task": "none"}
    writer.write(tmp_path / "eagle.safetensors", temperature=1.0, **said)
    own, eagle = (load_file(tmp_path / f"{name}.safetensors") for name in ("own", "eagle"))
    for name, values in eagle.items():
        assert torch.allclose(values.double(), own[name].double(), atol=1e-6), name
    contexts = Contexts(tmp_path / "eagle.safetensors")
    [screen] = contexts.screened({"mars": contexts.bound(RULES["mars"])}).values()
    assert screen.rows.isfinite().all()


def test_an_answer_that_failed_is_left_out(tmp_path: Path) -> None:
    """The file of two answers, of which the first is left out, is that of the second."""
    method, limits = method_of("model"), Limits(20, frozenset())
    recorder, asked = Recorder(0), requests(2)
    for place, request in enumerate(asked):
        for _ in range(2):  # the first decode did not end
            recorder.begin([request], [place])
            generations = generate(method, [request], limits, observers=[recorder])
        recorder.end(generations)
    recorder.write(tmp_path / "one.safetensors", method.sampling, limits, [0], **SAID)
    contexts = Contexts(tmp_path / "one.safetensors")
    assert contexts.answers == [1] and contexts.emitted == [20]
    assert contexts.requests[0].input_ids == asked[1].input_ids
    [screen] = contexts.screened({"lossless": contexts.bound(Lossless())}).values()
    assert screen.rows[0, 2] == len(generations[0].committed)
    with pytest.raises(ContextsError, match="no cycle was decoded"):
        Recorder(0).write(tmp_path / "none.safetensors", method.sampling, limits, **SAID)


def test_the_mass_outside_is_kept() -> None:
    """A context by hand: the largest logit, a drafted token, and the mass of two others."""
    z = torch.tensor([[[2.0, 1.0, 0.0, -1.0], [0.5, 0.0, 3.0, 1.0]]])
    draft = Draft.of_chain(torch.tensor([[0, 2]]))
    v = Verification(draft, z, Sampling(1.0), torch.zeros(1, 2))
    again = Logits.of(z, v, 1).dense(draft, 4)[0, 0].softmax(-1)
    p = z[0, 0].softmax(-1)
    p[[1, 3]] = (p[1] + p[3]) / 2
    assert torch.allclose(again, p, atol=1e-6)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("contexts") / "some.safetensors"
    recorded(made, "model", 8)
    return made


def test_what_a_file_cannot_give_is_said(file: Path) -> None:
    with pytest.raises(ContextsError, match="hidden states"):
        Contexts(file).bound(registry.rule("dropmatch")())


@pytest.mark.parametrize("damage", ["cut", "foreign", "lacks", "format", "token", "shape"])
def test_a_bad_file_is_one_line(file: Path, tmp_path: Path, damage: str) -> None:
    spoiled, tensors = tmp_path / file.name, load_file(file)
    said = Contexts(file).description.model_dump_json()
    match damage:
        case "foreign":
            said = None
        case "format":
            said = said.replace('"format":1', '"format":99')
        case "lacks":
            del tensors["target.rest"]
        case "token":
            tensors["tokens"][0, 0] = VOCAB
        case "shape":
            tensors["kept"] = tensors["kept"][:, :-1].contiguous()
    save_file(tensors, spoiled, {"leeway": said} if said else None)
    if damage == "cut":
        spoiled.write_bytes(spoiled.read_bytes()[:-100])
    with pytest.raises(ContextsError) as caught:
        Contexts(spoiled)
    assert str(spoiled) in str(caught.value) and "\n" not in str(caught.value)
