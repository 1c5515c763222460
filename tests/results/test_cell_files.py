"""A configuration is parsed section by section, and says what the whole file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from results.store import cell_files
from results.store.cell_files import read_config
from results.store.errors import StoreError

PATH = Path("cell.yaml")
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t:#-'\"{}[]&*!|>%@`? "),
                max_size=30)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
                      max_leaves=8)


@settings(deadline=None)
@given(st.dictionaries(st.from_regex("[a-z_]{1,8}", fullmatch=True), VALUES, min_size=1, max_size=5))
def test_what_was_written_is_read(config: dict[str, Any]) -> None:
    config.pop("schema", None)
    content = yaml.safe_dump({"schema": 1, **config}, sort_keys=False, allow_unicode=True).encode()
    assert read_config(PATH, content) == [config]


@pytest.mark.parametrize("text", [
    "a: &x {b: 1}\nc: *x\n",            # a reference to another section
    "a: 1\na: 2\n", "a:\n- 1\n- 2\nb: |\n  x\n\n  y\n", "a: 'x\n\n  y'\nb: 1\n", "# note\na: 1\n", "{a: 1,\nb: 2}\n",
    "a: 1\n? b\n: 2\n", "a: 1", "a: 1\r\nb: 2\r\n", "yes: 1\nno: 2\n", "a: {b: 1}  # note\nc: [1,\n 2]\n",
    "a:\nb:\n  c:\n"])
def test_a_file_by_hand_means_what_yaml_says(text: str) -> None:
    assert read_config(PATH, text.encode()) == [yaml.safe_load(text)]


@pytest.mark.parametrize("text", ["a: 'x\nb: y\n", "a: 1\n---\nb: 2\n", "a: [1,\nb: 2\n", "a: *x\n", "a: 1\n b: 2\n"])
def test_what_is_no_yaml_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match=r"cell\.yaml is not YAML"):
        read_config(PATH, text.encode())


def test_cells_share_sections_but_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[bytes] = []
    real = cell_files._load
    monkeypatch.setattr(cell_files, "_load", lambda content: (loads.append(content), real(content))[1])
    first, second = (read_config(PATH, b"shared_by_these:\n  models: [x]\nthe_name: n%d\n" % place)[0]
                     for place in range(2))
    assert len(loads) == 3, "the shared section once, each name"
    first["shared_by_these"]["models"].append("y")
    assert second == {"shared_by_these": {"models": ["x"]}, "the_name": "n1"}
