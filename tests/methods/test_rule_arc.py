"""ARC-Decode's acceptance: at its ends, and what constants it takes."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from methods.rules.arc import Arc
from methods.rules.base import DraftCapabilities
from methods.rules.lossless import lossless_test
from methods.sampling import Sampling
from tests.helpers.rule_cases import random_case
from tests.helpers.rule_pairs import ARC_EMBEDDING, ARC_ONE, ARC_THREE

SETTINGS = [Sampling(0.0), Sampling(1.0), Sampling(0.7, top_k=6, top_p=0.9)]
TARGET = SimpleNamespace(embedding=ARC_EMBEDDING, fingerprint="abc", source="test")


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_theta_one_takes_only_what_costs_nothing(sampling: Sampling) -> None:
    rule = Arc(theta=1.0).with_constants(ARC_ONE, ARC_EMBEDDING)
    for seed, tree in itertools.product(range(5), (False, True)):
        v = random_case(seed, sampling, sampled=False, tree=tree)
        real = v.draft.valid & (v.draft.depth > 0)
        assert torch.equal(rule.decide(v).accept & real, (v.is_argmax | lossless_test(v)) & real)


def test_smaller_theta_accepts_more() -> None:
    v = random_case(1, Sampling(1.0), sampled=False, tree=False)
    shares = [Arc(theta=t).with_constants(ARC_ONE, ARC_EMBEDDING).decide(v).accept.float().mean()
              for t in (1.0, 0.5, -1.0, -1e9)]
    assert shares == sorted(shares) and shares[0] < shares[-1] == 1


def test_constants_of_another_model_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "arc.json"
    file.write_text(ARC_ONE.model_dump_json())
    v = random_case(1, Sampling(1.0), sampled=False, tree=False)
    read = Arc(constants=file).bind(TARGET, None)
    assert torch.equal(read.decide(v).accept, Arc().with_constants(ARC_ONE, ARC_EMBEDDING).decide(v).accept)
    with pytest.raises(ValueError, match=r"measured for test \(abc\), the target is other \(xyz\); run"):
        Arc(constants=file).bind(SimpleNamespace(embedding=ARC_EMBEDDING, fingerprint="xyz", source="other"), None)
    file.write_text('{"target": "x"}')
    with pytest.raises(ValueError, match=r"not constants of bench\.train calibrate: fingerprint: Field required"):
        Arc(constants=file).bind(TARGET, None)
    file.write_text(ARC_THREE.model_copy(update={"edges": [0.5]}).model_dump_json())
    with pytest.raises(ValueError, match="1 edges cannot separate 3 buckets"):
        Arc(constants=file).bind(TARGET, None)
    with pytest.raises(ValueError, match=r"make them with `python -m bench.train calibrate"):
        Arc().check(DraftCapabilities("model", has_q=True, sampled=True), Sampling(1.0))


def test_a_vacuous_bound_is_said_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "arc.json"
    v = random_case(1, Sampling(1.0), sampled=False, tree=False)
    for constants, warned in ((ARC_ONE, False), (ARC_THREE, True)):
        file.write_text(constants.model_dump_json())
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            rule = Arc(constants=file).bind(TARGET, None)
        assert ("vacuous" in caplog.text) == warned == bool(rule.decide(v).flags["vacuous_bound"].any())
