"""Every rule against a slow float64 version that walks the tree node by node: same path, same emitted distribution."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from methods import registry, rule_map
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers import rule_reference
from tests.helpers.rule_table import TABLE, cases

SETTINGS = [Sampling(0.0), Sampling(1.0), Sampling(0.7, top_k=6, top_p=0.9)]


@cache
def trees(v: Verification) -> list[rule_reference.Tree]:
    return [rule_reference.contexts(v, row) for row in range(len(v.u))]


def test_every_rule_is_in_the_table() -> None:
    shipped = {name for name in registry.names("rules") if rule_map.entries(name)["source"] != rule_map.OWN}
    assert {entry.name for entry in TABLE.values()} == shipped
    assert all(label.split()[0] == entry.name for label, entry in TABLE.items())


@pytest.mark.parametrize("label", TABLE)
def test_same_path_and_emission(label: str) -> None:
    entry, lengths = TABLE[label], set()
    rule = entry.rule()
    for sampling in SETTINGS:
        seen, relaxed = cases(rule, sampling), 0
        for number, v in enumerate(seen):
            kept = walk(v, rule.decide(v))
            weights = rule.emit(v, kept.last)
            assert torch.isfinite(weights).all() and (weights >= 0).all()
            for row, tree in enumerate(trees(v)):
                path, expected, not_strict = entry.expected(tree)
                where = f"{sampling} case {number} row {row}"
                assert kept.kept[row].nonzero().flatten().tolist() == path, where
                assert int(kept.last[row]) == path[-1] and int(kept.length[row]) == len(path) - 1, where
                assert (int(kept.relaxed_count[row]), int(kept.greedier_count[row])) == not_strict, where
                emitted = weights[row].double().numpy() / float(weights[row].double().sum())
                np.testing.assert_allclose(emitted, expected / expected.sum(), atol=3e-6, err_msg=where)
                lengths.add(len(path))
                relaxed += not_strict[0]
        assert not seen or (relaxed > 0) == (entry.relaxes in (["always"] if sampling.greedy else ["always", "warm"]))
    assert len(lengths) > 2, "the cases must exercise short and long paths"
