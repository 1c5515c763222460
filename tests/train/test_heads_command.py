"""`python -m models.train heads`: training, measurement and export in one go; what is wrong is one
line."""

from __future__ import annotations

import json
import re
from itertools import islice

import pytest

from bench.config.compose import composer
from bench.config.paths import CONF
from methods.engine.loading import load_model
from methods.heads.medusa import load_medusa
from models.train.heads.command import parsed, run
from models.train.heads.trainers import RECIPES
from models.train.pair.command import TrainPair
from models.train.pair.data import CALIBRATION, embedded

SMALL = [
    "threads=1",
    "measure=1",
    "heads=[medusa]",
    "medusa.tokens=3072",
    "medusa.batch_tokens=512",
    "medusa.steps=2",
    "medusa.slots=24",
    "mix={mini_gsm: 0.5, mini_chat: 0.5}",
]


def config_of(*overrides: str):
    with composer(name="train_heads") as hydra:
        return hydra.point(overrides).config


def test_every_kind_has_a_valid_section():
    """Of the file, which explains every key."""
    settings, _ = parsed(config_of())
    assert set(settings.heads) <= set(RECIPES)
    config = config_of(f"heads=[{','.join(RECIPES)}]")
    for name, recipe in parsed(config)[1].items():
        assert set(config[name]) == set(type(recipe).model_fields), name
        rates = [recipe.rate(step) for step in (0, recipe.updates // 4, recipe.updates)]
        assert rates[0] < rates[1] == 1.0 and rates[2] == 0.0, name


def test_the_command_trains_measures_and_writes(pair_folder, tmp_path, capsys):
    folders = [f"{key}={tmp_path / key}" for key in ("out", "work")]
    config = config_of(*SMALL, f"target={pair_folder / 'target'}", *folders)
    run(config)
    shown = capsys.readouterr().out
    assert "medusa: held-out agreement" in shown and "draft token 2: top-1" in shown
    trained = tmp_path / "out" / "medusa"
    record = json.loads((trained / "training.json").read_text())
    target = load_model(str(pair_folder / "target"))
    assert record["target"] == target.fingerprint and len(record["rank_share"]) == 2
    assert record["loss"][-1]["step"] == 6
    assert len(load_medusa(str(trained), target).model) == 2
    run(config)
    assert "complete" in capsys.readouterr().out
    (trained / "training.json").write_text(json.dumps(record | {"target": "another"}))
    with pytest.raises(ValueError, match="another target"):
        run(config)


def test_calibration_prompts_are_held_out():
    source = embedded(0, {"mini_gsm": 1.0})
    held = {conversation[0][1] for conversation in islice(source.held_out(0, 0.0), 200)}
    trained = {conversation[0][1] for conversation in islice(source.train(0, 0.0), 400)}
    assert 20 < len(held) <= CALIBRATION and not held & trained


@pytest.mark.parametrize(
    "path", sorted((CONF / "recipe").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_command_of_a_recipe_is_one_that_would_run(path):
    second = path.read_text().splitlines()[1]
    command = re.search(rf"python -m models\.train (\w+) \+recipe={path.stem}$", second)
    assert command is not None
    with composer(name=f"train_{command[1]}") as hydra:
        config = hydra.point([f"+recipe={path.stem}"]).config
    if command[1] == "pair":
        assert TrainPair.from_config(config).target.start is not None
    else:
        settings, recipes = parsed(config)
        assert list(recipes) == settings.heads
