"""Draft trees through the whole loop: cache compaction, tree attention, positions, ragged batches."""

from __future__ import annotations

import pytest
import torch

from methods import registry
from methods.decode import Limits, Request, generate
from methods.method import build_method
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.tiny_models import ARCHITECTURES, VOCAB, language_model, prompts
from tests.helpers.tree_drafters import DEPTH, PARENTS, TreeDrafter, planted

NEW = 24


def run(target, drafter, rows, batch):
    method = build_method(target, None, drafter, registry.rule("greedy")(), Sampling(0.0), 4)
    out = []
    for at in range(0, len(rows), batch):
        out += generate(method, [Request(ids, "tree") for ids in rows[at:at + batch]], Limits(NEW, frozenset()))
    return out


def test_ancestors_and_depth_follow_from_parents():
    draft = Draft.of_parents(torch.zeros(2, len(PARENTS), dtype=torch.long), torch.tensor(PARENTS).expand(2, -1))
    assert draft.depth[1].tolist() == DEPTH
    for i, _ in enumerate(PARENTS):
        line, j = [], i
        while j >= 0:
            line.append(j)
            j = PARENTS[j]
        assert draft.ancestors[0, i].nonzero()[:, 0].tolist() == sorted(line)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_greedy_on_trees_equals_autoregressive(kind):
    target, rows = language_model(kind, layers=3), prompts(10, seed=5)
    want = [g.output_ids for g in run(target, registry.drafter("none")(), rows, 1)]
    answers = {tuple(row): ids for row, ids in zip(rows, want, strict=True)}
    drafter = TreeDrafter(choose=planted(answers, VOCAB, seed=0))
    for batch in (1, 5):
        found = run(target, drafter, rows, batch)
        assert [g.output_ids for g in found] == want
        accepted = [a for g in found for a in g.accepted]
        assert min(accepted) == 0 and max(accepted) >= 3  # short and long paths were walked
