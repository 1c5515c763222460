"""The two committed stores, unpacked, and sessions that read them without the models that measured them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from bench.config.cell import Cell
from bench.config.compose import Composer, composer
from bench.run.session import Session
from tasks.dataset import Dataset
from tests.oracles.frozen import PROJECT

ARCHIVES = ("embedded_cpu", "smollm2_cpu")
CACHE = Path(tempfile.gettempdir()) / "leeway_oracles"
STAND_INS = CACHE / "smollm2"
"""Folders with a configuration alone, in place of a model that is fetched over the network."""
SHAPE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
         "num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 30, "intermediate_size": 1536}
FINGERPRINTS = {"target": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "draft": "3a133cdf3bb1",
                "eagle3": "562e9ef9efd0"}
ELSEWHERE = "/root/real/"
"""Where the checkout lay in which some cells were measured."""


def measured(archive: str) -> Path:
    """The folder with the archive and the committed tables."""
    return PROJECT / "results" / "measured" / archive


@contextmanager
def unpacked(archive: str, without: str = "") -> Iterator[Path]:
    """A store that may be changed, its files linked to those of the unpacked archive; `without`: a name of files that
    are left out."""
    source = measured(archive) / "store.tar.xz"
    kept = CACHE / hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    CACHE.mkdir(exist_ok=True)
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as folder, tarfile.open(source) as file:
            file.extractall(folder, filter="data")
            if not kept.exists():
                os.rename(Path(folder) / "store", kept)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        store = Path(folder) / "store"
        shutil.copytree(kept, store, copy_function=os.link, ignore=shutil.ignore_patterns(".*", without))
        yield store


def summaries(store: Path) -> dict[str, dict[str, Any]]:
    """Cell -> its summary.json."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(store.glob("*/summary.json"))}


@contextmanager
def session_on(store: Path) -> Iterator[tuple[Session, Composer]]:
    """A session that reads this store. SmolLM2 is named, not read; each data set makes its prompts once."""
    for part in ("target", "draft"):
        (STAND_INS / part).mkdir(parents=True, exist_ok=True)
        (STAND_INS / part / "config.json").write_text(json.dumps(SHAPE))
    fingerprints, decoders = Cell.fingerprints, Cell.decoders

    def named(cell: Cell) -> dict[str, str]:
        if cell.pair.name != "smollm2":
            return fingerprints(cell)
        cut = cell.pair.target.source == str(STAND_INS / "draft")
        return {role: FINGERPRINTS["draft" if cut and role == "target" else role] for role in cell.roles}

    def decoded(cell: Cell) -> dict[str, str]:
        return {"target": "lean"} if cell.pair.name == "smollm2" else decoders(cell)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Cell, "fingerprints", named))
        stack.enter_context(mock.patch.object(Cell, "decoders", decoded))
        stack.enter_context(mock.patch.object(Dataset, "prompts", _once(Dataset.prompts)))
        hydra = stack.enter_context(composer())
        yield Session(hydra.settings([f"store.dir={store}"])), hydra


def _once(prompts: Any) -> Any:
    """The prompts of a data set, made once for equal options."""
    made: dict[tuple[Any, ...], Any] = {}

    def given(task: Any, *numbers: Any) -> Any:
        key = (task.name, json.dumps(task.options.model_dump(mode="json")), *numbers)
        if key not in made:
            made[key] = prompts(task, *numbers)
        return made[key]

    return given


@cache
def _smollm2() -> list[str]:
    return [f"pair.{part}={STAND_INS / part}" for part in ("target", "draft")] + ["pair.target_revision=null"]


def overrides_of(words: list[str]) -> list[str]:
    """The overrides of a command of TABLES.md, with the stand-ins in place of SmolLM2."""
    return [*words, *(_smollm2() if "pair=smollm2" in words else [])]


def cell_of(store: Path, key: str, asked: int | None, timed: int) -> Cell:
    """The cell of a folder, asking for so many prompts."""
    text = (store / key / "cell.yaml").read_text().replace(ELSEWHERE, "")
    config = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if (pair := config["pair"])["name"] == "smollm2":
        cut = not pair["target"].startswith("package:")
        pair |= {"target": str(STAND_INS / ("draft" if cut else "target")), "draft": str(STAND_INS / "draft"),
                 "target_revision": None}
    return Cell.parsed({**config, "n": asked, "timed": timed})
