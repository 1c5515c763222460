"""ARC-Decode's acceptance: against its slow reference, at its ends, and what constants it takes."""

from __future__ import annotations

import itertools
import logging
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from methods.rules.arc import Arc, Bucket, Constants
from methods.rules.base import DraftCapabilities
from methods.rules.lossless import lossless_test
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers import relaxed_reference, rule_reference
from tests.helpers.rule_cases import random_case

SETTINGS = [Sampling(0.0), Sampling(1.0), Sampling(0.7, top_k=6, top_p=0.9)]
EMBEDDING = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
ONE = Constants(target="test", fingerprint="abc", inv_std=(1 / EMBEDDING.std(0)).tolist(),
                buckets=[Bucket(c=0.02, alpha_kappa=0.1, tau=0.5, n=100)])
THREE = ONE.model_copy(update={"edges": [0.3, 0.6], "buckets": [
    Bucket(c=0.01, alpha_kappa=0.05, tau=0.2, n=50), *ONE.buckets, Bucket(c=0.05, alpha_kappa=0.3, tau=0.9, n=50)]})
TARGET = SimpleNamespace(embedding=EMBEDDING, fingerprint="abc", source="test")


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("constants", [ONE, THREE], ids=["one", "buckets"])
@pytest.mark.parametrize("options", [{"theta": 0.3}, {"theta": 0.8, "q_mode": "draft"},
                                     {"variant": "released", "q_mode": "draft"},
                                     {"variant": "released", "theta": 0.7}], ids=str)
def test_same_path_and_emission(options: dict, constants: Constants, sampling: Sampling) -> None:
    rule = Arc(**options).with_constants(constants, EMBEDDING)
    slow = relaxed_reference.arc_released if rule.variant == "released" else relaxed_reference.arc
    local = partial(slow, embedding=EMBEDDING.double().numpy(), constants=constants, theta=rule.theta,
                    q_mode=rule.q_mode)
    lengths, relaxed_nodes = set(), 0
    for seed, sampled, tree in itertools.product(range(3), (False, True), (False, True)):
        if sampled and sampling.greedy:
            continue
        v = random_case(seed, sampling, sampled=sampled, tree=tree)
        kept = walk(v, rule.decide(v))
        weights = rule.emit(v, kept.last).double().numpy()
        for row in range(len(v.u)):
            where = f"seed {seed} sampled {sampled} tree {tree} row {row}"
            path, expected, not_strict = rule_reference.walk(rule_reference.contexts(v, row), local)
            assert kept.kept[row].nonzero().flatten().tolist() == path, where
            assert (int(kept.relaxed_count[row]), int(kept.greedier_count[row])) == not_strict, where
            np.testing.assert_allclose(weights[row] / weights[row].sum(), expected, atol=2e-6, err_msg=where)
            lengths.add(len(path))
            relaxed_nodes += not_strict[0]
    assert len(lengths) > 3
    assert relaxed_nodes > 0 or (sampling.greedy and rule.variant == "released")


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_theta_one_takes_only_what_costs_nothing(sampling: Sampling) -> None:
    rule = Arc(theta=1.0).with_constants(ONE, EMBEDDING)
    for seed, tree in itertools.product(range(5), (False, True)):
        v = random_case(seed, sampling, sampled=False, tree=tree)
        real = v.draft.valid & (v.draft.depth > 0)
        assert torch.equal(rule.decide(v).accept & real, (v.is_argmax | lossless_test(v)) & real)


def test_smaller_theta_accepts_more() -> None:
    v = random_case(1, Sampling(1.0), sampled=False, tree=False)
    shares = [Arc(theta=t).with_constants(ONE, EMBEDDING).decide(v).accept.float().mean()
              for t in (1.0, 0.5, -1.0, -1e9)]
    assert shares == sorted(shares) and shares[0] < shares[-1] == 1


def test_constants_of_another_model_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "arc.json"
    file.write_text(ONE.model_dump_json())
    v = random_case(1, Sampling(1.0), sampled=False, tree=False)
    read = Arc(constants=file).bind(TARGET, None)
    assert torch.equal(read.decide(v).accept, Arc().with_constants(ONE, EMBEDDING).decide(v).accept)
    with pytest.raises(ValueError, match=r"measured for test \(abc\), the target is other \(xyz\); run"):
        Arc(constants=file).bind(SimpleNamespace(embedding=EMBEDDING, fingerprint="xyz", source="other"), None)
    file.write_text('{"target": "x"}')
    with pytest.raises(ValueError, match=r"not constants of bench\.calibrate: fingerprint: Field required"):
        Arc(constants=file).bind(TARGET, None)
    file.write_text(THREE.model_copy(update={"edges": [0.5]}).model_dump_json())
    with pytest.raises(ValueError, match="1 edges cannot part 3 buckets"):
        Arc(constants=file).bind(TARGET, None)
    with pytest.raises(ValueError, match=r"make them with `python -m bench.calibrate"):
        Arc().check(DraftCapabilities("model", has_q=True, sampled=True), Sampling(1.0))


def test_a_vacuous_bound_is_said_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "arc.json"
    v = random_case(1, Sampling(1.0), sampled=False, tree=False)
    for constants, warned in ((ONE, False), (THREE, True)):
        file.write_text(constants.model_dump_json())
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            rule = Arc(constants=file).bind(TARGET, None)
        assert ("vacuous" in caplog.text) == warned == bool(rule.decide(v).flags["vacuous_bound"].any())
