"""The engines that a configuration may name are those that the runner can load."""

from __future__ import annotations

from importlib import import_module
from typing import get_args

import pytest

from bench.run.engine import ENGINES, Engine
from methods.engine.families import EngineName


@pytest.mark.parametrize("name", get_args(EngineName))
def test_each_engine_can_be_imported(name: str) -> None:
    module, _, attribute = ENGINES[name].partition(":")
    engine = getattr(import_module(module), attribute)
    wanted = [one for one in vars(Engine) if not one.startswith("_")]
    assert "load" in wanted and not [one for one in wanted if not callable(getattr(engine, one, None))]


def test_no_engine_lacks_its_name() -> None:
    assert set(ENGINES) == set(get_args(EngineName))
