"""Traces: nothing is decoded differently, every cycle is told whole, and clauses are those of S, A
and R."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from methods.decode import Limits, Request, generate
from methods.drafters.model import ModelDrafter
from methods.method import build_method
from methods.rules.arc import Arc, Bucket, Constants
from methods.rules.base import Rule
from methods.rules.combined import Either
from methods.rules.dropmatch import Dropmatch
from methods.rules.fsd import Fsd
from methods.rules.lossless import Lossless, Random
from methods.rules.mars import Mars
from methods.rules.verification import Verification
from methods.rules.walk import KEPT, Clause, clauses, walk
from methods.sampling import Sampling
from methods.trace import TOP, generate_traced
from methods.trees.draft import Draft
from tests.helpers.rule_reference import distance
from tests.helpers.tiny_heads import method_of, requests
from tests.helpers.tiny_models import language_model, prompts


@pytest.mark.parametrize(
    "rule", [Mars(theta=0.5), Fsd(threshold=0.1), Lossless(), Dropmatch()], ids=repr
)
def test_a_traced_batch_decodes_the_same_and_tells_it_all(rule: Rule) -> None:
    target, model = language_model("llama", seed=0), language_model("llama", layers=1, seed=0)
    method = build_method(target, model, ModelDrafter(), rule, Sampling(1.0), 4)
    asked, limits = requests(3, seed=1), Limits(20, frozenset({3, 5}))
    plain, noted = generate(method, asked, limits), generate_traced(method, asked, limits)
    for plainly, other in zip(plain, noted, strict=True):
        columns = other.trace.columns
        for name in ("output_ids", "committed", "accepted", "relaxed", "greedier", "flags"):
            assert getattr(plainly, name) == getattr(other, name), name
        if not plainly.committed:
            continue
        kept = np.isin(columns["clause"], KEPT)
        emitted = columns["token"][kept | (columns["clause"] == Clause.DRAWN)].tolist()
        assert emitted == plainly.output_ids[1:], "also where the end cuts the last cycle"
        assert (
            np.bincount(columns["cycle"][kept], minlength=len(plainly.committed)).tolist()
            == plainly.accepted
        )
        assert (columns["clause"] == Clause.RELAXED).sum() == plainly.relaxed
        assert (columns["clause"] == Clause.ARGMAX).sum() == plainly.greedier
        assert (
            columns["accept"][kept].all()
            and not columns["accept"][columns["clause"] == Clause.REJECTED].any()
        )
        assert (
            columns["clause"][(columns["rank"] == 0) & (columns["parent"] == 0)].max()
            != Clause.UNREACHED
        )
        assert (columns["z1"] >= columns["z2"]).all() and (
            columns["p1"] + columns["p2"] <= 1 + 1e-5
        ).all()
        drafted = columns["clause"] != Clause.DRAWN
        assert np.isfinite(columns["js"][drafted]).all() and np.isnan(columns["q"][~drafted]).all()


def test_a_trace_is_the_same_in_a_batch_that_shrinks() -> None:
    method, ends = method_of("eagle3", "mars"), frozenset(range(0, 64, 8))
    whole, shrunk = (
        generate_traced(method, requests(9, seed=5), Limits(24, ends, shrink=shrink))
        for shrink in (False, True)
    )
    assert len({len(plainly.output_ids) for plainly in whole}) > 3
    for plainly, other in zip(whole, shrunk, strict=True):
        for name in ("output_ids", "committed", "nodes", "flags"):
            assert getattr(plainly, name) == getattr(other, name), name
        assert plainly.trace.columns.keys() == other.trace.columns.keys()
        for name, column in plainly.trace.columns.items():
            np.testing.assert_allclose(
                column, other.trace.columns[name], rtol=1e-3, atol=1e-4, err_msg=name
            )


def test_divergences_and_bounds_are_what_plain_forwards_say(tmp_path: Path) -> None:
    """Every tested draft token's numbers, in double precision, from one forward of each model over
    what was emitted."""
    target, model = language_model("llama", seed=0), language_model("llama", layers=1, seed=0)
    file, sampling = tmp_path / "arc.json", Sampling(0.7, top_k=20, top_p=0.9)
    constants = Constants(
        target="t",
        fingerprint=target.fingerprint,
        inv_std=(1 / target.embedding.std(0)).tolist(),
        buckets=[Bucket(c=0.02, alpha_kappa=0.1, tau=0.5, n=9)],
    )
    file.write_text(constants.model_dump_json())
    method = build_method(
        target, model, ModelDrafter(), Arc(constants=file, theta=-1000), sampling, 3
    )
    ids = prompts(1, seed=4)[0]
    [found] = generate_traced(method, [Request(ids, "one")], Limits(40, frozenset()))
    answer, columns = found.output_ids, found.trace.columns
    with torch.inference_mode():
        z, z_draft = (
            m.model(torch.tensor([ids + answer])).logits[0, len(ids) : -1].double()
            for m in (target, model)
        )
    on_path = np.flatnonzero(np.isin(columns["clause"], (*KEPT, Clause.DRAWN)))
    drafted = columns["clause"][on_path] != Clause.DRAWN
    assert drafted.sum() > 5, "there must be draft tokens to look at"
    p, q = z.softmax(-1), z_draft.softmax(-1)
    processed, token, best = (
        sampling.probs(z.float()).double(),
        torch.tensor(answer[1:]),
        z.argmax(-1),
    )
    moved = (
        target.embedding[token] - target.embedding[best]
    ).double() / target.embedding.double().std(0)
    index = torch.arange(len(token))
    margin = processed[index, best].log() - processed[index, token].clamp(min=1e-10).log()
    expected = {
        "p0": p[index, token],
        "z1": z.amax(-1),
        "p": processed[index, token],
        "q": sampling.probs(z_draft.float()).double()[index, token],
        "u_emb": 0.02 * (moved**2).sum(-1),
        "u_logit": 0.1 * margin**2,
    }
    for kind in ("js", "js_released", "kl", "tv"):
        rows = zip(p.numpy(), q.numpy(), strict=True)
        expected[kind] = torch.tensor([distance(kind, *row) for row in rows])
    for value, index_of, numbers in (("p", "top", p), ("draft_q", "draft_top", q)):
        values, indices = numbers.topk(TOP, -1)
        expected |= {f"{value}{i + 1}": values[:, i] for i in range(TOP)}
        expected |= {f"{index_of}{i + 1}": indices[:, i] for i in range(TOP)}
    for name, numbers in expected.items():
        found = columns[name][on_path][drafted]
        np.testing.assert_allclose(
            found, numbers.numpy()[drafted], rtol=2e-3, atol=1e-4, err_msg=name
        )


def chain_case(logits: list[float], token: int, u: float, temperature: float = 1.0) -> Verification:
    """A chain of one drafted `token`, whose test has the random number `u`, after raw target
    `logits`."""
    draft = Draft.of_chain(torch.tensor([[0, token]]))
    return Verification(
        draft, torch.tensor([[logits, logits]]), Sampling(temperature), torch.tensor([[0.0, u]])
    )


def bits(rule: Rule, v: Verification) -> tuple[bool, bool, bool, Clause]:
    """S, A, R and the clause of the drafted token."""
    decision = rule.decide(v)
    path = walk(v, decision)
    s, a, r = (bool(x[0, 1]) for x in (decision.lossless, v.is_argmax, rule.by_threshold(v)))
    return s, a, r, Clause(int(clauses(v, decision, path)[0, 1]))


LOGITS = [2.0, 1.9, -3.0]
"""p = 0.52, 0.47, 0.004; the ratio of the two largest logits is 0.95."""


@pytest.mark.parametrize(
    ("token", "u", "temperature", "expected"),
    [
        (0, 0.1, 1.0, (True, True, False, Clause.STRICT)),
        (
            0,
            0.9,
            1.0,
            (False, True, False, Clause.ARGMAX),
        ),  # an exact match that sampling refuses is no relaxation
        (
            1,
            0.1,
            1.0,
            (True, False, True, Clause.STRICT),
        ),  # kept by the threshold; that S holds as well is luck
        (1, 0.9, 1.0, (False, False, True, Clause.RELAXED)),
        (2, 0.9, 1.0, (False, False, False, Clause.REJECTED)),
        (0, 0.9, 0.0, (True, True, False, Clause.STRICT)),
        (1, 0.9, 0.0, (False, False, True, Clause.RELAXED)),
    ],
)
def test_the_three_bits_of_mars(token: int, u: float, temperature: float, expected: tuple) -> None:
    v = chain_case(LOGITS, token, u, temperature)
    assert bits(Mars(theta=0.9), v) == expected
    path = walk(v, Mars(theta=0.9).decide(v))
    counts = int(path.relaxed_count), int(path.greedier_count)
    assert counts == (int(expected[3] == Clause.RELAXED), int(expected[3] == Clause.ARGMAX))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Mars(theta=1.0), False),
        (Lossless(), False),
        (Lossless(q_mode="draft"), False),
        (Random(rate=1.0), True),
        (Mars(variant="sampling", theta=0.9), True),
        (Mars(variant="released", theta=0.9), True),
        (
            Either(first={"name": "mars", "theta": 0.9}, second={"name": "random", "rate": 1.0}),
            True,
        ),
        (Either(first={"name": "mars", "theta": 0.9}, second={"name": "lossless"}), True),
        (Either(first={"name": "mars", "theta": 0.9}, second={"name": "greedy"}), True),
    ],
    ids=repr,
)
def test_what_only_a_threshold_keeps(rule: Rule, expected: bool) -> None:
    """The runner-up, refused by the lossless test."""
    v = chain_case(LOGITS, 1, 0.9)
    v.draft.q = torch.ones(1, 2)
    assert bool(rule.by_threshold(v)[0, 1]) == expected
