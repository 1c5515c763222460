"""The identity of plain settings: a hash, with the contents of files in the place of their paths."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from bench.config.errors import ConfigError
from bench.config.paths import TINY
from bench.config.section import Named
from methods.engine.fingerprints import fingerprint
from methods.rules.combined import Nested, built
from results.store.files import content_of

if TYPE_CHECKING:
    from results.store.cells import Store

IDENTITY_VERSION = 3
"""Raise it when the same settings come to mean another computation."""
_RECORDED = re.compile(rb"^identity: (\d+)$", re.MULTILINE)


def of_other_identities(store: Store) -> str:
    """A line about cells that no command of this version reads, and which version does; empty where there are none."""
    found = Counter(int(number[1]) for cell in store.cells()
                    if (number := _RECORDED.search(content_of(cell.path / "cell.yaml") or b"")) is not None)
    others = [f"{count} cells of identity {identity}" for identity, count in sorted(found.items())
              if identity != IDENTITY_VERSION]
    return "" if not others else (
        f"{store.root}: {', '.join(others)}: this version reads cells of identity {IDENTITY_VERSION} alone; the commit "
        "of Leeway that measured a cell, in its environment.json, reads it")


def are_own(fingerprints: Iterable[str]) -> bool:
    """Whether all these models are among those that the project ships in models/tiny."""
    own = {fingerprint(str(file.parent)) for file in TINY.glob("*/config.json")}
    return set(fingerprints) <= own


def contents(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder with their names. Raises ConfigError where there is none."""
    if path.is_dir():
        folder = hashlib.sha256()
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            folder.update(f"{file.relative_to(path)}\0".encode() + bytes.fromhex(contents(file)))
        return folder.hexdigest()
    try:
        state = path.stat()
    except OSError as error:
        raise ConfigError(f"{path}: no such file") from error
    return _sha256(path, state.st_mtime_ns, state.st_size)


@cache
def _sha256(path: Path, mtime_ns: int, size: int) -> str:
    """Of a file that has not changed since: a report names it for each of its cells."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def by_content(plain: Any, values: Any) -> Any:
    """`plain`, JSON data, with the content of files in place of their paths. `values` is the same data in Python's
    types, where exactly the paths are `Path`s."""
    if isinstance(values, Path):
        return contents(values)
    if isinstance(values, Mapping):
        return {key: by_content(one, value) for (key, one), value in zip(plain.items(), values.values(), strict=True)}
    if isinstance(values, list | tuple):
        return [by_content(one, value) for one, value in zip(plain, values, strict=True)]
    return plain


def without_later(plain: Mapping[str, Any], model: BaseModel) -> dict[str, Any]:
    """`plain`, which `model` was dumped as, without options that its class got after version 3 (`OPTIONS`) and that
    have their default. The same of every section and rule inside."""
    known, kept = OPTIONS.get(type(model).__qualname__), {}
    for name, value in plain.items():
        own, field = getattr(model, name, None), type(model).model_fields.get(name)
        is_later = known is not None and name not in known
        if is_later and field is not None and own == field.get_default(call_default_factory=True):
            continue
        if isinstance(own, dict) and isinstance(model, Nested):
            own = built(own)
        if isinstance(own, Named):  # dumped flat
            own = own.options
        kept[name] = without_later(value, own) if isinstance(own, BaseModel) and isinstance(value, Mapping) else value
    return kept


def states(values: Any) -> tuple[tuple[str, int, int], ...]:
    """Path, time of the last change and size of every file that `values`, as in `by_content`, name or hold in a
    folder; nothing for a path that leads nowhere."""
    if isinstance(values, Path):
        files = [values] if values.is_file() else sorted(file for file in values.rglob("*") if file.is_file())
        return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    if isinstance(values, Mapping):
        values = tuple(values.values())
    return tuple(state for value in values for state in states(value)) if isinstance(values, list | tuple) else ()


def digest(plain: Mapping[str, Any]) -> str:
    """10 hex digits of plain data, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]


OPTIONS = {name: frozenset(options.split()) for name, options in {
    "Cell": "pair drafter rule task decoding engine draft pruning n timed seed repeat batch",
    "Decoding": "max_new_tokens temperature top_k top_p",
    "DraftLength": "length",
    "Pruning": "alpha budget decay epsilon leaf score",
    "TaskOptions": "max_new_tokens",
    "PromptsOptions": "max_new_tokens path",
    "DatasetOptions": "chat files history hub id judged keep licence max_new_tokens pass_at path prompt references "
                      "revision samples scorer shots split splits stop subset system target version where",
    "Shots": "count source target",
    "Nothing": "name",
    "RougeL": "name",
    "Harness": "filter filters name rules",
    "IFEval": "by name",
    "Code": "memory_mb name sandbox timeout_s",
    "LiveCodeBench": "memory_mb name sandbox timeout_s",
    "Arc": "constants floor keep q_mode theta variant",
    "ArgmaxOnly": "of",
    "Asd": "budget max_relaxed regret_per_value variant",
    "Autojudge": "classifier threshold",
    "Bild": "rollback",
    "Block": "variant",
    "Cactus": "delta",
    "CascadeOpt": "alpha gate head",
    "CascadeTok": "alpha top_set variant",
    "CoarseGrained": "groups largest similarity token",
    "Contrastive": "alpha beta gate temperature",
    "Csd": "answers count tau",
    "Dropmatch": "heads nucleus p_drop selection variant",
    "DropoutHead": "head p_drop",
    "Ears": "tolerance",
    "Either": "first second",
    "Ensemble": "schedule tokens variant w w_first",
    "EntropyVerify": "alpha threshold",
    "Fly": "entropy no_window window",
    "Fsd": "correction divergence processed threshold",
    "Greedy": "",
    "Judge": "classifier threshold",
    "Lossless": "q_mode",
    "Lossy": "alpha",
    "Mars": "indicator q_mode theta variant",
    "Mentored": "budget tolerance",
    "NearTop": "after_tokens begin by end from_position protected span threshold top_n",
    "RFuzzy": "divergence threshold",
    "Random": "rate",
    "RelaxedTopk": "begin delta end span top_n",
    "SecureSd": "end_eta gamma relaxed schedule start_eta tokens",
    "Threshold": "acc single",
    "ToppWindow": "max_candidates variant window",
    "Traversal": "",
    "Typical": "correction delta epsilon variant",
    "Eagle": "tree",
    "Eagle2": "branching depth replacement stop_below top_k total tree",
    "Eagle3": "branching depth replacement stop_below top_k total tree",
    "EarlyExit": "exit_layer sample stop_below",
    "Hass": "branching depth replacement stop_below top_k total tree",
    "Lookahead": "guesses level pool_from_prompt window",
    "MedusaDrafter": "tree",
    "ModelDrafter": "branching replacement sample stop_below",
    "NoneDrafter": "",
    "PromptLookup": "max_ngram",
    "Suffix": "corpus factor max_depth min_probability",
}.items()}
"""Class of options -> the names of those by whose values a cell has been named since identity version 3.

An option that such a class got later enters neither the identity nor cell.yaml at its default, so that stored cells
keep their names; that default may never come to mean something else. A class that is not listed, such as a rule of
one's own, is named by all its options. When IDENTITY_VERSION is raised, all classes are listed anew."""
