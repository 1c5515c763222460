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
from methods.rules.base import Rule
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
    return generations, own.of([len(generation.committed) for generation in generations])[
        "own"
    ].rows


def scatters_around_0(apart: torch.Tensor) -> bool:
    """Whether the mean lies within 3.5 of its standard errors."""
    error = float(apart.std()) / len(apart) ** 0.5
    return abs(float(apart.mean())) <= 3.5 * error + 1e-9


RULES = [
    ("lossless", "model", {}),
    ("lossless", "eagle3", {}),
    ("mars_sampling", "eagle3", {}),
    ("random", "eagle3", {"rate": 0.6}),
    ("typical", "eagle3", {}),
    ("tilted", "eagle3", {"lam": 0.3}),
    ("tilted", "model", {"lam": 0.3}),
    ("cactus", "model", {}),
    ("ensemble", "model", {"w": 0.7, "w_first": 0.2}),
    ("block", "model", {}),
    ("block", "model", {"towards": "tilted", "lam": 0.5}),
]


def rule_of(name: str, options: dict[str, Any]) -> Rule:
    if name == "mars_sampling":
        return registry.rule("mars")(variant="sampling", theta=0.5)
    return registry.rule(name)(**options)


@pytest.mark.parametrize(("rule", "drafter", "options"), RULES)
def test_what_is_expected_is_what_comes_on_average(
    rule: str, drafter: str, options: dict[str, Any]
) -> None:
    """Given the drafts, the tokens and nats of each cycle scatter around those expected; ends of
    answers fall into many cycles."""
    method = method_of(drafter, rule_of(rule, options))
    generations, rows = watched(method, requests(64))
    tokens = torch.tensor(
        [sum(generation.committed) for generation in generations], dtype=torch.float64
    )
    apart = tokens - rows[:, 0]
    assert rows[:, 2].tolist() == [len(generation.committed) for generation in generations]
    assert scatters_around_0(apart)
    nats = [
        generation.divergence.nats
        for generation in generations
        if generation.divergence is not None
    ]
    if not method.rule.has_law() and not method.rule.is_lossless(method.sampling):
        assert rows[rows[:, 2] > 0, 1].isnan().all()
    elif max(nats) < 1e-6:
        assert rows[:, 1].max() < 1e-6
    else:
        lost = torch.tensor(nats, dtype=torch.float64) - rows[:, 1]
        assert scatters_around_0(lost)


@pytest.mark.parametrize(("rule", "drafter"), [("lossless", "eagle3"), ("mars", "model")])
def test_at_temperature_0_what_is_expected_is_what_comes(rule: str, drafter: str) -> None:
    method = method_of(drafter, rule, Sampling(0.0))
    generations, rows = watched(method, requests(12))
    assert rows[:, 0].tolist() == [sum(generation.committed) for generation in generations]


def test_nothing_counts_behind_the_last_token() -> None:
    """A rule that keeps everything is expected to emit what there is room for."""
    method = method_of("model", registry.rule("random")(rate=1.0), Sampling(0.0))
    never = Limits(6, frozenset())
    own = Screen({"own": method.rule}, requests(4), never, method.target.device)
    generations = generate(method, requests(4), never, observers=[own])
    assert [generation.committed for generation in generations] == [[5]] * 4
    assert (
        own.of([len(generation.committed) for generation in generations])["own"].rows[:, 0].tolist()
        == [5.0] * 4
    )


def test_all_rules_see_the_drafts_of_the_lossless_decode() -> None:
    lossless = method_of("eagle3")
    others = [method_of("eagle3", Lossless(q_mode="draft"))]
    plain = generate(lossless, requests(6), LIMITS)
    rules = {"lossless": lossless.rule, "q": others[0].rule}
    generations, screens = screened(host(lossless, others), rules, requests(6), LIMITS)
    assert [generation.output_ids for generation in generations] == [
        generation.output_ids for generation in plain
    ]
    assert screens["lossless"].rows[:, 1].abs().max() < 1e-6
    assert screens["q"].rows[:, 1].sum() > 1


class Hidden(Lossless):
    """Its decisions depend on a draw that it does not declare."""

    def decide(self, v: Any) -> Decision:
        return Decision(torch.rand(v.u.shape) < 0.5)


def test_a_rule_that_hides_its_randomness_has_no_numbers() -> None:
    _, screens = screened(host(method_of("eagle3"), []), {"hidden": Hidden()}, requests(2), LIMITS)
    assert "does not declare" in screens["hidden"].unknown


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
        "later": LaterHidden(),
        "raises": Raises(),
        "secure": registry.rule("secure_sd")(),
        "lossless": Lossless(),
    }
    _, screens = screened(host(method_of("model"), []), rules, requests(6), LIMITS)
    assert "does not declare" in screens["later"].unknown
    assert screens["raises"].unknown == "ZeroDivisionError: of its own"
    assert screens["secure"].no_law == "a decision depends on more than its context"
    assert not screens["lossless"].unknown and not screens["lossless"].no_law
    assert screens["lossless"].rows.isfinite().all()


def test_pieces_give_the_numbers_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    v = random_case(3, Sampling(1.0), sampled=False, tree=True)
    rule = registry.rule("mars")(variant="sampling", theta=0.5)
    counted = v.draft.valid
    whole = expected(rule, v, counted, torch.Generator())
    monkeypatch.setattr(screen, "SCREENED_BYTES", 8 * v.logits.shape[-1] * 2)
    pieces = expected(rule, v, counted, torch.Generator())
    assert whole.nats is not None and pieces.nats is not None
    assert torch.allclose(whole.nats, pieces.nats, atol=1e-12)
    assert torch.equal(whole.tokens, pieces.tokens)


PEAK = 24e9
"""Bytes of a GPU that a screen of a large vocabulary may take."""


@pytest.mark.parametrize("device", DEVICES)
def test_a_large_vocabulary_fits(device: str) -> None:
    """Trees of 64 nodes over 152,064 tokens: on a GPU 16 rows at once, on the CPU few of both. The
    lossless rule keeps what p gives its candidates and loses nothing."""
    rows, nodes, vocab = (16, 64, 152_064) if device == "cuda" else (2, 8, 4_096)
    random = torch.Generator(device).manual_seed(0)
    z = 2 * torch.randn(rows, nodes, vocab, generator=random, device=device)
    parents = torch.tensor([-1, *((node - 1) // 3 for node in range(1, nodes))], device=device)
    of_rank = z.topk(3, -1).indices
    ranks = (torch.arange(nodes, device=device) - 1) % 3
    tokens = of_rank[:, parents.clamp(min=0), ranks]
    draft = Draft.of_parents(tokens, parents[None].expand(rows, -1).contiguous())
    u = torch.rand(rows, nodes, device=device)
    for rule in (Lossless(), registry.rule("mars")(variant="sampling"), registry.rule("typical")()):
        seen = expected(rule, Verification(draft, z, Sampling(1.0), u), draft.valid, CPU_RANDOM)
        assert seen.nats is not None and seen.nats.isfinite().all()
        if isinstance(rule, Lossless):
            kept = z.softmax(-1).gather(-1, of_rank)
            root = kept[:, 0].sum(-1).double()
            assert seen.nats.abs().max() < 1e-3
            assert (seen.tokens > 1 + root - 1e-4).all()
    if device == "cuda":
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
