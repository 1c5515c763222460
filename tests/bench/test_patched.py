"""Points that share a resolved configuration equal those that OmegaConf resolves one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from bench.config import patched
from bench.config.compose import Composer, composer
from bench.config.errors import ConfigError
from bench.config.patched import covers, named_keys
from bench.config.points import as_dict


@pytest.fixture(scope="module")
def hydra() -> Iterator[Composer]:
    with composer() as composing:
        yield composing


def one_by_one(hydra: Composer, overrides: list[str]) -> dict:
    """The point's configuration, every value set before anything is resolved."""
    parsed = hydra._parse(overrides)
    config = hydra._config([one.input_line for one in parsed if hydra._is_structural(one)])
    for one in parsed:
        if not hydra._is_structural(one):
            OmegaConf.update(config, one.key_or_group, one.value(), merge=True)
    return as_dict(config)


@pytest.mark.parametrize("overrides", [
    [], ["seed=3", "n=4"], ["method=mars", "rule.theta=0.7", "draft.length=3"],
    ["method=mars", "output.dir=elsewhere"], ["output.dir=elsewhere", "store.dir=here"], ["data=files", "task=gsm8k"],
    ["method=eagle3", "pair.nodes=7"], ["method=eagle3", "pair.nodes=7", "pair.beams=3", "seed=1"],
    ["pair=local", "pair.target=a/b", "pair.draft=c/d"], ["draft={length:9}", "draft.length=4"],
    ["draft.length=4", "draft={length:9}"], ["replay=[0.8,0.9]", "replay=0.5"], ["n=null"],
    ["engine.threads=2", "n=auto"],
    ["task=prompts", "task.path=${data}/mine.jsonl", "data=files"], ["+pair.extra=1", "pair.name=x", "seed=2"],
    ["task=mini_chat", "pair=vicuna_13b", "n=3"], ["task=gsm8k"], ["task=gsm8k", "task.split=train"],
    ["task=mini_chat", "output.dir='out-${task.name}'"], ["task=cnn_dm", "task.max_new_tokens=5", "method=eagle3"],
    ["decoding.temperature=1e-3", "decoding.top_p=1", "pair.dtype=bfloat16"], ["pair.name='a b'", "n='7'"],
])
def test_a_point_is_what_omegaconf_makes_of_it(hydra: Composer, overrides: list[str]) -> None:
    unique = list({one.get_key_element(): one.input_line for one in hydra._parse(overrides)}.values())
    expected = one_by_one(hydra, unique)
    for _ in range(2):
        config = hydra.point(overrides).config
        assert config == expected
        assert [type(value) for value in config.values()] == [type(value) for value in expected.values()]
        config["pair"]["name"] = config["task"]["name"] = config["seed"] = "changed by its user"


@pytest.mark.parametrize(("overrides", "key"), [
    (["rule.thta=1"], "rule.thta"), (["method=mars", "rule.theta.x=1"], "rule.theta"), (["nothing=1"], "nothing"),
    (["pair=local"], "pair.target"), (["task=prompts"], "task.path"),
    (["seed=1", "engine.devise=cpu"], "engine.devise")])
def test_a_key_that_is_not_there_is_named(hydra: Composer, overrides: list[str], key: str) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match=key):
            hydra.point(overrides)


@pytest.mark.parametrize("points", [50, 100])
def test_a_sweep_is_resolved_once(hydra: Composer, monkeypatch: pytest.MonkeyPatch, points: int,
                                  tmp_path: Path) -> None:
    calls: list[int] = []
    real = patched.as_dict
    monkeypatch.setattr(patched, "as_dict", lambda config, **given: (calls.append(1), real(config, **given))[1])
    values = ",".join(str(place / points) for place in range(1, points + 1))
    command = hydra.command(["method=mars", f"output.dir={tmp_path}", f"rule.theta={values}", "seed=1,2"], True)
    assert len(command.points) == 2 * points and len(calls) <= 2
    assert [point.config["rule"]["theta"] for point in command.points[::2]] == \
        pytest.approx([place / points for place in range(1, points + 1)])
    assert {point.config["store"]["dir"] for point in command.points} == {f"{tmp_path}/store"}


def test_which_keys_interpolations_name() -> None:
    assert named_keys({"a": "${b.c}/x ${d}", "e": ["${f}"], "g": 1, "h": "${project:models/tiny}"}) == {"b.c", "d", "f"}
    assert named_keys({"a": "${.b}"}) is named_keys({"a": "${b.${c}}"}) is named_keys({"a": "${oc.env:HOME}"}) is None
    assert covers("a.b", "a.b.c") and covers("a", "a") and not covers("a.b", "a.bc") and not covers("a.b", "a")
