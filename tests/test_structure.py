"""The checkout keeps its limits, and each breach is found; so is a skip that nobody expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import structure

FILES = {
    "bench/run/timed_pass/rotate.py": "import bench.config.cell\nfrom bench import speed\nimport matplotlib.pyplot\n",
    "bench/config/cell.py": "def compose():\n    from bench.run.timed_pass import rotate\n",
    "bench/speed.py": "from bench.config.cell import compose\n",
    "methods/decode.py": "import tasks.base\n",
    "tasks/base.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import methods.decode\n",
    "results/store/cells.py": "from ..metrics.summary import Summary\n",
    "results/metrics/summary.py": "class Summary:\n    pass\n" + "# a line\n" * 449,
    "plots/words.py": "WORDS = (\n" + "    'word',\n" * 450 + ")\n",
    "plots/long.py": "def long():\n" + "    pass\n" * 50,
}


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    for path, text in FILES.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


CHECKOUT = structure.check()


@pytest.mark.parametrize("title", CHECKOUT)
def test_the_checkout_keeps_the_limit(title: str) -> None:
    assert CHECKOUT[title] == []


def test_each_breach_is_found(broken: Path) -> None:
    project = structure.Project.read(broken)
    assert structure.long_files(project) == ["results/metrics/summary.py: 451 lines"]
    assert structure.excepted_data(project) == ["plots/words.py: 452 lines"]
    assert structure.long_functions(project) == ["plots/long.py:1 long: 51 lines"]
    assert sorted(structure.upward(project)) == [
        "bench/config/cell.py:2 imports bench/run/timed_pass/rotate.py: bench/run is above "
        "bench/config",
        "bench/run/timed_pass/rotate.py:2 imports bench/speed.py: bench/commands is above "
        "bench/run",
        "bench/run/timed_pass/rotate.py:3 imports matplotlib.pyplot: only plots may",
        "methods/decode.py:1 imports tasks/base.py: methods/decode.py may not import tasks/base.py",
        "results/store/cells.py:1 imports results/metrics/summary.py: results/metrics is above "
        "results/store",
        "tasks/base.py:3 imports methods/decode.py: tasks/base.py may not import methods/decode.py",
    ]


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
