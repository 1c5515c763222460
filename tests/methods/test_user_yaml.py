"""A user's YAML gives plain values, or one line that says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from methods import user_yaml

FAULTS = {
    "a: !!int ''": "line 1: !!int '': not a value of this tag",
    "a: !!bool x": "!!bool 'x': not a value of this tag",
    "a: !!python/object/apply:os.system [ls]": "only plain values are read",
    "a: 1\nb: 2\na: 3": "line 3: a is given twice; give it once",
    "? [a]\n: 1": "unhashable key",
    "[" * 2000 + "]" * 2000: "nested more than 64 levels deep",
    "a: &a [*a]": "an alias .*write the value itself",
    "a: [": "parsing a flow node",
    "a: \x00": "special characters are not allowed",
    "a: 1\n---\nb: 2": "single document",
    "# " + "x" * user_yaml.MOST_BYTES: "characters; at most",
}
PLAIN = {
    "a: 2001-01-01": {"a": "2001-01-01"},
    "": None,
    "1: a\n'1': b": {1: "a", "1": "b"},
    "a: [1, 2.5, 1e-3, true, null, x]": {"a": [1, 2.5, 1e-3, True, None, "x"]},
}


@pytest.mark.parametrize("text", FAULTS, ids=lambda text: text[:20])
def test_a_fault_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=FAULTS[text]) as caught:
        user_yaml.parse(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(("text", "value"), PLAIN.items())
def test_plain_values_are_read(text: str, value: object) -> None:
    assert user_yaml.parse(text) == value


def test_a_file_of_30_mb_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    with file.open("wb") as large:
        large.truncate(30 << 20)
    with pytest.raises(ValueError, match=r"large.yaml: not YAML: 31 MB; at most 1 MB"):
        user_yaml.mapping(file)
