"""Traces: nothing is decoded differently, every cycle is told whole, and clauses are those of S, A
and R."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

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
    ("drafter", "rule"),
    [
        ("model", Mars(theta=0.5)),
        ("model", Fsd(threshold=0.1)),
        ("model", Lossless()),
        ("model", Dropmatch()),
        ("eagle3", Mars()),
    ],
    ids=str,
)
def test_a_traced_batch_decodes_the_same_and_tells_it_all(drafter: str, rule: Rule) -> None:
    """The same also in a batch that shrinks."""
    method, asked = method_of(drafter, rule), requests(9, seed=5)
    limits = Limits(24, frozenset(range(0, 64, 8)))
    plain, noted = generate(method, asked, limits), generate_traced(method, asked, limits)
    shrunk = generate_traced(method, asked, replace(limits, shrink=True))
    assert len({len(plainly.output_ids) for plainly in plain}) > 3
    for plainly, other, less in zip(plain, noted, shrunk, strict=True):
        columns = other.trace.columns
        assert columns.keys() == less.trace.columns.keys()
        for name, column in columns.items():
            np.testing.assert_allclose(
                column, less.trace.columns[name], rtol=1e-3, atol=1e-4, err_msg=name
            )
        for name in (
            "output_ids",
            "committed",
            "accepted",
            "relaxed",
            "greedier",
            "nodes",
            "flags",
        ):
            values = [getattr(one, name) for one in (plainly, other, less)]
            assert values == [values[0]] * 3, name
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


LOGITS = [2.0, 1.9, -3.0]
"""p = 0.52, 0.47, 0.004; the ratio of the two largest logits is 0.95."""


def either(second: dict[str, Any]) -> Either:
    return Either(first={"name": "mars", "theta": 0.9}, second=second)


@pytest.mark.parametrize(
    ("rule", "token", "u", "temperature", "by_threshold", "clause"),
    [
        (Mars(theta=0.9), 0, 0.1, 1.0, False, Clause.STRICT),
        # an exact match that sampling refuses is no relaxation
        (Mars(theta=0.9), 0, 0.9, 1.0, False, Clause.ARGMAX),
        # kept by the threshold; that the lossless test keeps it as well is luck
        (Mars(theta=0.9), 1, 0.1, 1.0, True, Clause.STRICT),
        (Mars(theta=0.9), 1, 0.9, 1.0, True, Clause.RELAXED),
        (Mars(theta=0.9), 2, 0.9, 1.0, False, Clause.REJECTED),
        (Mars(theta=0.9), 0, 0.9, 0.0, False, Clause.STRICT),
        (Mars(theta=0.9), 1, 0.9, 0.0, True, Clause.RELAXED),
        (Mars(theta=1.0), 1, 0.9, 1.0, False, Clause.REJECTED),
        (Lossless(), 1, 0.9, 1.0, False, Clause.REJECTED),
        (Lossless(q_mode="draft"), 1, 0.9, 1.0, False, Clause.REJECTED),
        (Random(rate=1.0), 1, 0.9, 1.0, True, Clause.RELAXED),
        (Mars(variant="sampling", theta=0.9), 1, 0.9, 1.0, True, Clause.RELAXED),
        (Mars(variant="released", theta=0.9), 1, 0.9, 1.0, True, Clause.RELAXED),
        (either({"name": "random", "rate": 1.0}), 1, 0.9, 1.0, True, Clause.RELAXED),
        (either({"name": "lossless"}), 1, 0.9, 1.0, True, Clause.RELAXED),
        (either({"name": "greedy"}), 1, 0.9, 1.0, True, Clause.RELAXED),
    ],
    ids=str,
)
def test_clauses_and_what_only_a_threshold_keeps(
    rule: Rule, token: int, u: float, temperature: float, by_threshold: bool, clause: Clause
) -> None:
    """Of the drafted `token`, whose test has the random number `u`."""
    draft = Draft.of_chain(torch.tensor([[0, token]]), q=torch.ones(1, 2))
    z, numbers = torch.tensor([[LOGITS, LOGITS]]), torch.tensor([[0.0, u]])
    v = Verification(draft, z, Sampling(temperature), numbers)
    decision = rule.decide(v)
    assert bool(rule.by_threshold(v)[0, 1]) == by_threshold
    assert clauses(v, decision, walk(v, decision))[0, 1] == clause
