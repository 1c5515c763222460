"""A cell.yaml says what the whole file says, though it is parsed section by section; what is none is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from results.store.errors import StoreError
from results.store.records import read_config

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
    assert read_config(PATH, content) == config


@pytest.mark.parametrize("text", [
    "a: &x {b: 1}\nc: *x\n",            # a reference to another section
    "a: 1\na: 2\n", "a:\n- 1\n- 2\nb: |\n  x\n\n  y\n", "a: 'x\n\n  y'\nb: 1\n", "# note\na: 1\n", "{a: 1,\nb: 2}\n",
    "a: 1\n? b\n: 2\n", "a: 1", "a: 1\r\nb: 2\r\n", "yes: 1\nno: 2\n", "a: {b: 1}  # note\nc: [1,\n 2]\n",
    "a:\nb:\n  c:\n"])
def test_a_file_by_hand_means_what_yaml_says(text: str) -> None:
    assert read_config(PATH, text.encode()) == yaml.safe_load(text)


@pytest.mark.parametrize("text", ["a: 'x\nb: y\n", "a: 1\n---\nb: 2\n", "a: [1,\nb: 2\n", "a: *x\n", "a: 1\n b: 2\n"])
def test_what_is_no_yaml_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match=r"cell\.yaml is not YAML"):
        read_config(PATH, text.encode())


def test_cells_of_a_later_schema_are_refused() -> None:
    with pytest.raises(StoreError, match=r"schema 3: this version reads schemas up to 2"):
        read_config(PATH, b"schema: 3\nseed: 0\n")
