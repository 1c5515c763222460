"""Points composed as plain data equal those of Hydra's own `compose`; what only Hydra could compose
is refused."""

from __future__ import annotations

import json
from functools import reduce
from operator import getitem
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bench.config.compose import composer
from bench.config.paths import CONF, PROJECT
from tests.bench.conftest import WORD
from tests.helpers.tables import rows


@pytest.fixture(scope="module")
def user(tmp_path_factory) -> Path:
    """A user's own folder of YAMLs."""
    folder = tmp_path_factory.mktemp("user")
    files = {
        "method/mine": """
            # @package _global_
            defaults:
              - override /drafter: eagle3
              - override /rule: mars
            rule: {theta: 85e-2}
            draft: {length: 1_0}""",
        "pair/mine": """
            defaults: [tiny, _self_]
            name: mine
            draft: ${.target}-${pair.dtype}
            arc: ${.target}""",
        "pair/first": "defaults: [_self_, tiny]\nname: mine\nextra: 2026-11-27",
        "sweep/mine": """
            # @package _global_
            defaults:
              - override /method: mars
            hydra:
              mode: MULTIRUN
              sweeper: {params: {task: mini_gsm, rule.theta: "0.8,0.9"}}""",
    }
    for name, text in files.items():
        file = folder / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text).lstrip())
    return folder


def by_hydra(overrides: list[str], folder: Path | None = None) -> dict[str, Any]:
    """The configuration as Hydra alone makes it."""
    OmegaConf.register_new_resolver("project", lambda path: str(PROJECT / path), replace=True)
    further = [] if folder is None else [f"hydra.searchpath=['file://{folder}']"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        made = compose("config", [*overrides, *further])
    return OmegaConf.to_container(made, resolve=True, throw_on_missing=True)


def assert_same(config: dict[str, Any], expected: dict[str, Any]) -> None:
    """Values, their types and the order of keys below the sections."""
    assert config.keys() == expected.keys()
    ordered = {key: config[key] for key in expected}
    assert json.dumps(ordered, default=repr) == json.dumps(expected, default=repr)


POINTS = """
method=arc decoding.temperature=1e-3 draft={length:9} n=null data='3' seed=1_0
pair=local pair.target=a/b method=autojudge_dropmatch output.dir=elsewhere pair.name='a b'
task=gsm8k task.split=train task.stop=[a,b] task.scorer={filter:x} n=${draft.length}
method=eagle3 rule=fsd pair.nodes=7 drafter.total=${pair.beams} store.dir='${data}-${task.name}'
rule=arc_released pair=local pair.target=x n=3
task=cnn_dm pair=smollm2 cost=epyc_tiny launch=slurm tracker=wandb engine=vllm
+sweep=mars_theta task=mini_chat pair.thinking=True
+pair.extra={a:[1,b]} ++n=3 rule=either
method=mars_released rule=fsd rule.threshold=0.7
"""


@pytest.mark.parametrize("words", POINTS.strip().splitlines())
def test_a_point_is_what_hydra_makes_of_it(hydra, words):
    overrides = WORD.findall(words)
    expected = by_hydra(overrides)
    for _ in range(2):
        config = hydra.point(overrides).config
        assert_same(config, expected)
        config["pair"]["name"] = config["seed"] = "changed by its user"


@pytest.mark.parametrize("overrides", [["method=mine", "pair=mine"], ["pair=first"]])
def test_a_users_folder_is_composed_as_conf_is(user, overrides):
    with composer(["--config-dir", str(user)]) as mine:
        config = mine.point(overrides).config
    expected = by_hydra(overrides, user)
    assert_same({key: config[key] for key in expected}, expected)


SWEEPS = """
-m n=range(1,4) | n=1 | n=2 | n=3
-m n=choice(2,1) seed=0,1 | n=2 seed=0 | n=2 seed=1 | n=1 seed=0 | n=1 seed=1
-m n=sort(3,1,2) | n=1 | n=2 | n=3
-m rule.q_mode=exact pair.nodes=range(0.8,1,0.05) | pair.nodes=0.8 | pair.nodes=0.85 | pair.nodes=0.9 | pair.nodes=0.95
-m task=glob(mini_c*,exclude=*_code) | task=mini_chat | task=mini_choice
-m rule=lossless,mars rule.theta=0.8,0.9 | rule=lossless | rule=mars rule.theta=0.8 | rule=mars rule.theta=0.9
-m method=sps,dropmatch batch=1,4 +pair.x=1 | rule=lossless batch=1 pair.x=1 | rule=lossless batch=4 pair.x=1 | rule=dropmatch batch=1 pair.x=1 | rule=dropmatch batch=4 pair.x=1
+sweep=mars_theta task=mini_chat rule.theta=0.5,0.7 method=mars | draft.length=7 rule.theta=0.5 task=mini_chat rule=mars | draft.length=7 rule.theta=0.7 | draft.length=10 rule.theta=0.5 | draft.length=10 rule.theta=0.7 task=mini_chat
+sweep=fsd_threshold rule.threshold=0.3,0.1 draft.length=7 | rule.threshold=0.3 draft.length=7 task=mini_gsm | rule.threshold=0.1 draft.length=7 task=mini_gsm
"""


@pytest.mark.parametrize(("words", "points"), [(words, points) for words, *points in rows(SWEEPS)])
def test_a_sweep_has_the_points_of_hydras_basic_sweeper(hydra, words, points):
    composed = hydra.command(words.split()).points
    for point, expected in zip(composed, points, strict=True):
        pairs = [word.split("=") for word in expected.split()]
        assert [[key, str(value_at(point.config, key))] for key, _ in pairs] == pairs


def value_at(config: dict[str, Any], key: str) -> Any:
    """The value of a key; of a section its name."""
    found = reduce(getitem, key.split("."), config)
    return found["name"] if isinstance(found, dict) else found
