"""A stored cell keeps its name when options are added; a cell.yaml counts only under the name of its settings."""

from __future__ import annotations

import shutil
import sys
import tarfile
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import cost, merge
from bench.config.cell import Cell
from bench.config.errors import ConfigError
from bench.config.paths import PROJECT
from methods.engine.source import ModelError
from results.store.cells import Store
from tasks.base import TaskError

ARCHIVES = sorted((PROJECT / "results" / "measured").glob("*/store.tar.xz"))


@pytest.fixture(scope="module")
def committed() -> dict[str, dict[str, Any]]:
    """Name -> settings of every committed cell."""
    found = {}
    for archive in ARCHIVES:
        with tarfile.open(archive) as file:
            for member in file:
                if member.name.endswith("/cell.yaml"):
                    config = yaml.load(file.extractfile(member), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
                    found[Path(member.name).parent.name] = config
    return found


def names(config: Mapping[str, Any]) -> set[str]:
    """The names that a cell with these settings can have on models with the recorded fingerprints. Empty where that
    cannot be told here: a file is missing, the identity, the task or vLLM had another version."""
    if config.get("identity") != 3 or "fingerprints" not in config:
        return set()
    try:
        cell = Cell.parsed({**config, "n": None, "timed": 0})
        if cell.engine.name != "lab" or config.get("task_contents") != cell.task_contents():
            return set()
        roles = [role for role in cell.roles if role in cell.pair.causal_roles]
        decoders = [dict(zip(some, chosen, strict=True)) for some in (roles, roles[:1])  # none of a draft cut out
                    for chosen in product(("lean", "transformers"), repeat=len(some))]
        return {cell.named(cell.identity(config["fingerprints"], one)) for one in decoders}
    except (ConfigError, ModelError, TaskError):
        return set()


def test_committed_cells_are_found_again_whatever_option_was_added(committed: dict[str, dict[str, Any]]) -> None:
    assert len(ARCHIVES) == 2 and len(committed) == 1168
    checked = {key: found for key, config in committed.items() if (found := names(config))}
    assert [key for key, found in checked.items() if key not in found] == []
    assert len(checked) >= 1160, "the others name a file that is not committed"


@pytest.mark.parametrize(("section", "option", "default", "other"), [
    ("decoding", "min_p", 0.0, 0.1), ("drafter", "stop_below", 0.0, 0.5)])
def test_an_added_option_counts_where_it_is_set(
        committed: dict[str, dict[str, Any]], section: str, option: str, default: Any, other: Any) -> None:
    key, config = next((key, config) for key, config in committed.items()
                       if "-mars-" in key and config["drafter"]["name"] == "model" and names(config))

    def named(value: Any) -> set[str]:
        return names({**config, section: {**config[section], option: value}})

    assert key in named(default) and named(other) and key not in named(other)


def test_changed_settings_are_refused_in_one_line_wherever_they_are_read(
        command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = command("method=mars", "timed=0", "decoding.temperature=1")
    key = measured.cell.key
    shutil.copytree(measured.store.root, tmp_path / "other")
    file = tmp_path / "other" / key / "cell.yaml"
    text = file.read_text()
    assert "temperature: 1.0" in text
    file.write_text(text.replace("temperature: 1.0", "temperature: 2.0"))

    def resumed() -> int:
        result = command("method=mars", "timed=0", "decoding.temperature=1", "n=4", store=tmp_path / "other")
        print(result.err, file=sys.stderr)
        return result.status

    commands: dict[str, Callable[[], int]] = {
        "cost": lambda: cost.main(["cost=epyc_tiny", f"store.dir={tmp_path / 'other'}"]),
        "merge": lambda: merge.main([f"store.dir={tmp_path / 'into'}", f"from={tmp_path / 'other'}"]),
        "resume": resumed}
    for name, run in commands.items():
        capsys.readouterr()
        status, said = run(), capsys.readouterr().err
        assert status in (1, 2) and sum(str(file) in line for line in said.splitlines()) == 1, (name, said)
        assert "Traceback" not in said
    assert len(Store(tmp_path / "other").cell(key).samples()) == 3, "nothing was added to it"
    assert not (tmp_path / "into" / key).exists()
