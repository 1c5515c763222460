"""`make same-tokens` records code that decodes the same tokens, and no other."""

from __future__ import annotations

import shutil

import pytest

from bench.config.paths import PROJECT
from tests.helpers.same_tokens import compare

CODE = ("bench", "methods", "plots", "results", "tasks")
NOT_CODE = ("measured", "published", "data", "rows")


@pytest.mark.slow
def test_what_is_recorded_decodes_the_same_tokens(tmp_path):
    """The project with the same constant of MARS in other words, and with another test of ARC."""
    tree = tmp_path / "project"
    for name in CODE:
        shutil.copytree(
            PROJECT / name, tree / name, ignore=shutil.ignore_patterns(*NOT_CODE, "__pycache__")
        )
    for name in ("conf", "models", "tasks/data", "tasks/mini/rows"):
        (tree / name).symlink_to(PROJECT / name)
    edits = {
        "mars": ("EPSILON = 1e-10", "EPSILON = 10**-10"),
        "arc": ("torch.minimum(emb, logit) <=", "torch.minimum(emb, logit) >"),
    }
    for name, (old, new) in edits.items():
        file = tree / f"methods/rules/{name}.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
    same, equal = compare(PROJECT, tree, tmp_path / "stores", prompts=2)
    assert same == {"rules/mars": True, "rules/arc": False}
    assert len(equal) == 1
