"""docs/papers.md: every preset is what the report composes on the papers' pairs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from bench.config.compose import composer
from bench.config.paths import PROJECT
from bench.reports.overrides import Selection
from bench.reports.plan import uncollected
from bench.reports.steps import KINDS
from results.reports.spec import parse_report

PAGE = (PROJECT / "docs" / "papers.md").read_text(encoding="utf-8")
ABSENT = object()


def presets() -> dict[str, list[tuple[str, Any, str]]]:
    """Report -> (key, value, label of the points that have it, or empty for all)."""
    found: dict[str, list[tuple[str, Any, str]]] = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or cells[0] in ("report", ":--"):
            continue
        assert len(cells) == 5 and all(cells), line
        for preset in cells[3].split("; "):
            key, value, _, label = re.fullmatch(r"`([\w.]+)=([^`]+)`( at (.+))?", preset).groups()
            for report in cells[0].split(", "):
                found.setdefault(report, []).append((key, yaml.safe_load(value), label or ""))
    return found


def held(config: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        if part not in config:
            return ABSENT
        config = config[part]
    return config.removeprefix(f"{PROJECT}/") if isinstance(config, str) else config


@pytest.fixture(scope="module")
def hydra() -> Iterator[Any]:
    with composer() as composing:
        yield composing


@pytest.mark.slow
@pytest.mark.parametrize("report", sorted(presets()))
def test_presets_are_those_of_the_page(report: str, hydra: Any) -> None:
    spec = Selection.from_overrides(["scale=paper"]).edition(parse_report(hydra.section("report", report)))
    with uncollected():
        configs = [(point.coords, hydra.point(point.overrides).config) for point in spec.points()
                   if not any(entry.no_cell for entry in spec.entries(point.coords).values())]
    for key, value, label in presets()[report]:
        values = [found for coords, config in configs if not label or label in coords
                  if (found := held(config, key)) is not ABSENT]
        assert values and all(found == value for found in values), (key, value, label, set(map(str, values)))


def test_the_page_names_how_files_are_made() -> None:
    commands = [KINDS["arc"].overrides, KINDS["autojudge"].overrides, *KINDS["autojudge"].of_task.values()]
    text = " ".join(PAGE.split())
    assert all(f"`{' '.join(words)}`" in text for words in commands)
