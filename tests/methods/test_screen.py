"""What a rule is expected to do in a cycle, beside what it does there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from bench.screen import screen as command
from methods import registry, screen
from methods.batch import Generation
from methods.decode import Limits, Observer, Request, generate
from methods.distortion import LawRecorder
from methods.method import Method
from methods.rules.lossless import Lossless
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.sampling import Sampling
from methods.screen import Screen, expected, host, screened
from methods.trees.draft import Draft
from tests.helpers.devices import DEVICES
from tests.helpers.rule_cases import random_case
from tests.helpers.tiny_heads import method_of, requests
from tests.helpers.tiny_models import VOCAB

CPU_RANDOM = torch.Generator()
LIMITS = Limits(40, frozenset(range(0, VOCAB, 16)))
"""Answers of an untrained target end at one token in 16."""


def watched(method: Method, asked: list[Request]) -> tuple[list[Generation], torch.Tensor]:
    """The rule's own decode, with what it was expected to do in its cycles: tokens, nats, cycles
    of each request."""
    own = Screen({"own": method.rule}, asked, LIMITS, method.target.device)
    laws = LawRecorder(method, LIMITS)
    observers: list[Observer] = [own, laws]
    generations = generate(method, asked, LIMITS, observers=observers)
    laws.add_to(generations)
    return generations, own.of([len(one.committed) for one in generations])["own"].rows


def scatters_around_0(apart: torch.Tensor) -> bool:
    """Whether the mean lies within 3.5 of its standard errors."""
    error = float(apart.std()) / len(apart) ** 0.5
    return abs(float(apart.mean())) <= 3.5 * error + 1e-9


SAMPLING = {"variant": "sampling", "theta": 0.5}
RULES = [
    ("lossless", "model", {}, 1.0),
    ("lossless", "eagle3", {}, 1.0),
    ("lossless", "eagle3", {}, 0.0),
    ("mars", "eagle3", SAMPLING, 1.0),
    ("mars", "model", {}, 0.0),
    ("random", "eagle3", {"rate": 0.6}, 1.0),
    ("random", "model", {"rate": 1.0}, 0.0),
    ("typical", "eagle3", {}, 1.0),
    ("tilted", "eagle3", {"lam": 0.3}, 1.0),
    ("tilted", "model", {"lam": 0.3}, 1.0),
    ("cactus", "model", {}, 1.0),
    ("ensemble", "model", {"w": 0.7, "w_first": 0.2}, 1.0),
    ("block", "model", {}, 1.0),
    ("block", "model", {"towards": "tilted", "lam": 0.5}, 1.0),
]


@pytest.mark.parametrize(("rule", "drafter", "options", "temperature"), RULES)
def test_what_is_expected_is_what_comes_on_average(
    rule: str, drafter: str, options: dict[str, Any], temperature: float
) -> None:
    """Given the drafts, the tokens and nats of each cycle scatter around those expected; ends of
    answers fall into many cycles. At temperature 0 the tokens are those expected."""
    method = method_of(drafter, registry.rule(rule)(**options), Sampling(temperature))
    generations, rows = watched(method, requests(64))
    tokens = torch.tensor([sum(one.committed) for one in generations], dtype=torch.float64)
    assert rows[:, 2].tolist() == [len(one.committed) for one in generations]
    assert scatters_around_0(tokens - rows[:, 0])
    if temperature == 0:
        assert tokens.tolist() == rows[:, 0].tolist()
        return
    if not method.rule.has_law() and not method.rule.is_lossless(method.sampling):
        assert rows[rows[:, 2] > 0, 1].isnan().all()
        return
    nats = torch.tensor([one.divergence.nats for one in generations], dtype=torch.float64)
    if method.rule.is_lossless(method.sampling):
        assert nats.max() < 1e-6 and rows[:, 1].max() < 1e-6
    else:
        assert scatters_around_0(nats - rows[:, 1])


def test_all_rules_see_the_drafts_of_the_lossless_decode() -> None:
    lossless = method_of("eagle3")
    biased = method_of("eagle3", Lossless(q_mode="draft"))
    plain = generate(lossless, requests(6), LIMITS)
    rules = {"lossless": lossless.rule, "q": biased.rule}
    generations, screens = screened(host(lossless, [biased]), rules, requests(6), LIMITS)
    assert [one.output_ids for one in generations] == [one.output_ids for one in plain]
    assert screens["lossless"].rows[:, 1].abs().max() < 1e-6
    assert screens["q"].rows[:, 1].sum() > 1


class Hidden(Lossless):
    """Its decisions depend on a draw that it does not declare."""

    def decide(self, v: Any) -> Decision:
        return Decision(torch.rand(v.u.shape) < 0.5)


class LaterHidden(Hidden):
    """Hides its randomness in later cycles alone."""

    calls: ClassVar[list[int]] = []

    def decide(self, v: Any) -> Decision:
        self.calls.append(1)
        return super().decide(v) if len(self.calls) > 12 else Lossless.decide(self, v)


class Raises(Lossless):
    def decide(self, v: Any) -> Decision:
        raise ZeroDivisionError("of\nits own")


def test_a_rule_without_numbers_says_why_and_the_others_have_theirs() -> None:
    rules = {
        "hidden": Hidden(),
        "later": LaterHidden(),
        "raises": Raises(),
        "secure": registry.rule("secure_sd")(),
        "lossless": Lossless(),
    }
    _, screens = screened(host(method_of("model"), []), rules, requests(6), LIMITS)
    assert all("does not declare" in screens[name].unknown for name in ("hidden", "later"))
    assert screens["raises"].unknown == "ZeroDivisionError: of its own"
    assert screens["secure"].no_law == "a decision depends on more than its context"
    assert not screens["lossless"].unknown and not screens["lossless"].no_law
    assert screens["lossless"].rows.isfinite().all()


def test_pieces_give_the_numbers_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    v = random_case(3, Sampling(1.0), sampled=False, tree=True)
    rule = registry.rule("mars")(**SAMPLING)
    whole = expected(rule, v, v.draft.valid, CPU_RANDOM)
    monkeypatch.setattr(screen, "SCREENED_BYTES", 8 * v.logits.shape[-1] * 2)
    pieces = expected(rule, v, v.draft.valid, CPU_RANDOM)
    assert whole.nats is not None and pieces.nats is not None
    assert torch.allclose(whole.nats, pieces.nats, atol=1e-12)
    assert torch.equal(whole.tokens, pieces.tokens)


PEAK = 24e9
"""Bytes of a GPU that a screen of a large vocabulary may take."""


@pytest.mark.parametrize("device", [DEVICES[1]])
def test_a_large_vocabulary_fits(device: str) -> None:
    """Trees of 64 nodes over 152,064 tokens, 16 rows at once."""
    rows, nodes, vocab = 16, 64, 152_064
    z = torch.randn(rows, nodes, vocab, generator=torch.Generator(device), device=device)
    node = torch.arange(nodes, device=device).expand(rows, -1).contiguous()
    draft = Draft.of_parents(node, torch.where(node > 0, (node - 1) // 3, -1))
    v = Verification(draft, z, Sampling(1.0), torch.rand(rows, nodes, device=device))
    for rule in (Lossless(), registry.rule("mars")(variant="sampling"), registry.rule("typical")()):
        seen = expected(rule, v, draft.valid, CPU_RANDOM)
        assert seen.nats is not None and seen.nats.isfinite().all()
    assert torch.cuda.max_memory_allocated() < PEAK


@pytest.mark.parametrize("device", [DEVICES[1]])
def test_a_screen_on_a_gpu_is_that_of_the_cpu(tmp_path: Path, device: str) -> None:
    frames = {}
    for where in ("cpu", device):
        words = [f"engine.device={where}", "n=4", "rules=[mars,typical]", f"output.dir={tmp_path}"]
        frames[where], _, _ = command([*words, "decoding.temperature=0"])
    columns = ["tau", "distortion"]
    apart = frames["cpu"][columns] - frames[device][columns]
    assert apart.abs().max().max() < 1e-3
