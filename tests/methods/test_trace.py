"""Traces: nothing is decoded differently, every cycle is told whole, and clauses are those of S, A
and R."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from methods.decode import Limits, generate
from methods.rules.base import Rule
from methods.rules.combined import Either
from methods.rules.dropmatch import Dropmatch
from methods.rules.fsd import Fsd
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.verification import Verification
from methods.rules.walk import KEPT, Clause, clauses, walk
from methods.sampling import Sampling
from methods.trace import TOP, TraceRecorder, generate_traced
from methods.trees.draft import Draft
from tests.helpers.relaxed_reference import arc_bounds
from tests.helpers.rule_reference import contexts, distance, softmax
from tests.helpers.rule_table import ARC_ONE, TABLE, case
from tests.helpers.tiny_heads import method_of, requests


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
        drafted = columns["clause"] != Clause.DRAWN
        assert np.isfinite(columns["js"][drafted]).all() and np.isnan(columns["q"][~drafted]).all()


def test_columns_are_those_of_their_contexts() -> None:
    """Of every node of trees, in double precision."""
    entry, top = TABLE["arc one"], range(TOP)
    rule, embedding = entry.rule(), entry.given["embedding"]
    v = case(0, Sampling(0.7, top_k=6, top_p=0.9), sampled=False, tree=True)
    decision, recorder = rule.decide(v), TraceRecorder(rule)
    path = walk(v, decision)
    recorder.on_first(v.logits[:, 0], v.draft.tokens[:, 0])
    drawn = v.at(v.argmax, path.last)
    recorder.on_cycle(v, decision, path, drawn, v.u[:, 0], range(len(v.u)))
    for row, [columns] in enumerate(recorder.cycles):
        for context, children in contexts(v, row).values():
            p, q = softmax(context.z), softmax(context.draft_z)
            best, guessed = (np.argsort(-one) for one in (p, q))
            of_context = {
                "z1": context.z.max(),
                "z2": np.sort(context.z)[-2],
                **{f"top{i + 1}": best[i] for i in top},
                **{f"p{i + 1}": p[best[i]] for i in top},
                **{f"draft_top{i + 1}": guessed[i] for i in top},
                **{f"draft_q{i + 1}": q[guessed[i]] for i in top},
                **{kind: distance(kind, p, q) for kind in ("js", "js_released", "kl", "tv")},
            }
            for child in children:
                by_embedding, by_logit, _ = arc_bounds(context, child.token, embedding, ARC_ONE)
                expected = of_context | {
                    "p0": p[child.token],
                    "p": context.p[child.token],
                    "q": q[child.token],
                    "u_emb": by_embedding,
                    "u_logit": by_logit,
                }
                for name, number in expected.items():
                    assert columns[name][child.node - 1] == pytest.approx(
                        float(number), rel=2e-3, abs=1e-4
                    ), name


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
        (Lossless(q_mode="draft"), 1, 0.9, 1.0, False, Clause.REJECTED),
        (either({"name": "random", "rate": 1.0}), 1, 0.9, 1.0, True, Clause.RELAXED),
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
