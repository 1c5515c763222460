from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from huggingface_hub.errors import DryRunError

from bench.__main__ import main
from bench.config.compose import Composer, composer
from bench.dry_run.downloads import config_folder, listing
from bench.run import console
from bench.run.models import ModelPool
from results.store.cells import CellFolder, Store
from tests.helpers.commands import run
from tests.helpers.judging import Server


@dataclass(frozen=True)
class Result:
    """What a command printed, and what lies in its store."""

    out: str
    err: str
    store: Store

    @property
    def cells(self) -> list[CellFolder]:
        """The cells that were asked for: without baselines whose samples alone were needed."""
        cells = self.store.cells()
        baselines = {cell.config()["baseline"] for cell in cells}
        return [
            cell for cell in cells if len(cells) == 1 or cell.key not in baselines or cell.timed()
        ]

    @property
    def cell(self) -> CellFolder:
        [cell] = self.cells
        return cell

    @property
    def last_line(self) -> dict:
        return json.loads(self.out.splitlines()[-1])


Command = Callable[..., Result]
WORD = re.compile(r"(?:[^\s']|'[^']*')+")


@pytest.fixture(scope="session")
def hydra() -> Iterator[Composer]:
    """What composes conf/config.yaml."""
    with composer() as composing:
        yield composing


@pytest.fixture(scope="session")
def pair(pair_folder) -> list[str]:
    """Overrides that choose the small untrained pair; its heads are shapes."""
    heads = [
        f"pair.{head}=random:{pair_folder / head}" for head in ("eagle3", "eagle", "hass", "medusa")
    ]
    return [
        "pair=local",
        f"pair.target={pair_folder / 'target'}",
        f"pair.draft={pair_folder / 'draft'}",
        *heads,
    ]


@pytest.fixture(autouse=True)
def no_clock(monkeypatch):
    """No line that depends on how long a command takes."""
    monkeypatch.setattr(console, "EVERY_S", float("inf"))


@pytest.fixture
def offline(monkeypatch):
    """A hub that cannot be reached, at once."""

    def fail(*args, **kwargs):
        raise DryRunError("cannot be performed") from ConnectionError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *args, **kwargs: None)
    yield
    listing.cache_clear()
    config_folder.cache_clear()


@pytest.fixture
def command(
    pair,
    tmp_path,
    capsys,
    monkeypatch,
) -> Command:
    """`python -m bench` in this process, on the small pair: three prompts of twelve tokens, timed
    in a report or sweep alone, unless said otherwise. Words of a line are parted by
    spaces; `status`: the exit status that it must have."""
    monkeypatch.setattr(sys, "argv", ["bench"])

    def commanded(*lines: str, status: int = 0, store: Path = tmp_path / "store") -> Result:
        words = [word for line in lines for word in WORD.findall(line)]
        keys = {word.lstrip("+").partition("=")[0] for word in words}
        defaults = {
            "n": 3,
            "decoding.max_new_tokens": 12,
            "store.dir": store,
            "output.dir": tmp_path / "out",
        }
        if not keys & {"report", "sweep"}:
            defaults["timed"] = 0
        common = [
            *([] if "pair" in keys else pair),
            *(f"{key}={value}" for key, value in defaults.items()),
        ]
        common = [word for word in common if word.partition("=")[0] not in keys]
        capsys.readouterr()
        ended = main([*common, *words])
        printed = capsys.readouterr()
        assert ended == status, printed.err
        return Result(printed.out, printed.err, Store(store))

    return commanded


@pytest.fixture
def vllm(monkeypatch) -> None:
    """vLLM is as good as installed: a command with engine=vllm is composed."""
    monkeypatch.setattr("bench.config.engine.vllm_version", lambda: "0.32.0")


@pytest.fixture
def no_models(monkeypatch) -> Callable[[], None]:
    """From its call on, a model that is loaded fails the test."""

    def fail(pool, cell):
        pytest.fail("a model was loaded")

    return lambda: monkeypatch.setattr(ModelPool, "load", fail)


MEASURED = "-m method=sps,mars n=3 timed=2 trace=true decoding.temperature=1"
"""The command that has filled `store`."""


@pytest.fixture(scope="session")
def measured(pair, tmp_path_factory) -> Path:
    """A store of two cells and their baseline, timed and traced. Tests read it; those that change
    one take `store`."""
    folder = tmp_path_factory.mktemp("measured")
    words = f"{MEASURED} decoding.max_new_tokens=12 output.dir={folder}"
    ended = run("bench", *pair, *words.split())
    assert ended.status == 0, ended.err
    return folder / "store"


@pytest.fixture
def store(measured, tmp_path) -> Store:
    """A copy of it, where `command` has its store."""
    return Store(shutil.copytree(measured, tmp_path / "store"))


@pytest.fixture
def own_report(tmp_path) -> Callable[[str], str]:
    """Writes a user's report; the words that run it."""

    def written(text: str) -> str:
        file = tmp_path / "conf" / "report" / "own.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return f"--config-dir {tmp_path / 'conf'} report=own"

    return written


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made
        made.shutdown()
