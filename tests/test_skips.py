"""A skip that nobody expects fails continuous integration."""

from __future__ import annotations

import pytest

pytest_plugins = ("pytester",)


@pytest.mark.parametrize(
    ("reason", "on", "status"),
    [
        ("no reference data at /x", "true", 0),
        ("it is too hard", "true", 1),
        ("it is too hard", "", 0),
    ],
)
def test_an_unexpected_skip_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, reason: str, on: str, status: int
) -> None:
    monkeypatch.setenv("CI", on)
    pytester.makepyfile(
        "import pytest\ndef test_this():\n    pass\ndef test_other():\n    "
        f"pytest.skip({reason!r})\n"
    )
    result = pytester.runpytest_inprocess("-p", "tests.helpers.ci", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == status and ("test_other: it is too hard" in result.stdout.str()) == bool(
        status
    )
