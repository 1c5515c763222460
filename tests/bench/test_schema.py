"""The JSON schemas of conf/ are those of today's models, editors know them, and each YAML keeps to its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from bench.config.paths import CONF
from bench.schema import FOLDER, schemas

MADE = schemas()


@pytest.mark.parametrize("name", MADE)
def test_a_schema_is_current(name: str) -> None:
    held = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert held == json.loads(json.dumps(MADE[name])), "run `python -m bench.schema`"


@pytest.mark.parametrize("path", [path for name in MADE for path in sorted((CONF / name).glob("*.yaml"))],
                         ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_yaml_keeps_to_its_schema(path: Path) -> None:
    made = Draft202012Validator(MADE[path.parent.name])
    assert not [error.message for error in made.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))]


def test_editors_know_the_schemas() -> None:
    settings = json.loads((CONF.parent / ".vscode" / "settings.json").read_text(encoding="utf-8"))
    assert settings["yaml.schemas"] == {f"conf/schema/{name}.json": f"**/{name}/*.yaml" for name in sorted(MADE)}


@pytest.mark.parametrize(("kind", "section"), [
    ("report", {"name": "x", "kind": "table", "values": ["speedupp"]}), ("report", {"name": "x", "rowz": ["A"]}),
    ("report", {"name": "x", "kind": "table", "axes": {"A": [{"labell": "a"}]}}), ("pair", {"nodes": "many"}),
    ("rule", {"name": "mars", "thetta": 0.9}), ("drafter", {"name": "eagle3", "total": -1})])
def test_a_mistake_does_not_keep_to_it(kind: str, section: dict) -> None:
    assert not Draft202012Validator(MADE[kind]).is_valid(section)
