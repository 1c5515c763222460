"""The files of a cell's folder: their names, and how those that are not written line by line are parsed."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from results.store.errors import StoreError
from results.store.json_text import json_text
from results.store.lines import digest_of, plain_of
from results.store.reasons import one_line

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""The name of a cell's folder."""
RECORDS = ("profile", "agreement", "coverage", "judge")
"""Further measurements of a cell (`CellFolder.write_record`)."""
FILES = frozenset({"cell.yaml", "environment.json", "samples.jsonl", "timed.jsonl", "summary.json", "failure.json",
                   "verdicts.jsonl", *(f"{name}.json" for name in RECORDS)})
TRACE = "trace"
_TRACE_FILE = re.compile(r"\d{5,}\.parquet|failure\.json")
SCHEMA = 2
"""Version of the files of a cell. Raise it when the meaning of a file changes, and keep reading older versions; cells
without a schema have version 1. Since 2 a sample has its prompt's hash and what each cycle's tree held."""
NESTING, LARGEST = (b"[", b"{", b"- ", b"? "), 1 << 20
"""Tokens that begin a level of nesting, except indentation, which takes many bytes; size of a large file in bytes."""
DEEPEST = 2000
"""Most levels for libyaml's parser: it is faster than Python's, but crashes the process at very deep nesting."""
SECTIONS = 4096
"""Sections of configurations that are kept parsed: cells of one store share most of theirs."""
_SECTION = re.compile(rb"^[a-z_]+:(?:[ ].*)?\n(?:[ -].*\n)*", re.MULTILINE)
"""A top-level key with its value, as `write_config` writes it."""


def is_known(parts: tuple[str, ...]) -> bool:
    """Whether a path below a cell's folder, in its parts, is of a file that this project writes."""
    if len(parts) == 1:
        return parts[0] in FILES
    return len(parts) == 2 and parts[0] == TRACE and bool(_TRACE_FILE.fullmatch(parts[1]))


def files_of(cell: Path) -> tuple[list[Path], list[Path]]:
    """The files of a cell's folder that this project writes, and the other ones, links among them, both relative to the
    folder; hidden names are in neither. Links are not followed."""
    known: list[Path] = []
    others: list[Path] = []
    for entry in _below(cell):
        path = Path(entry.path).relative_to(cell)
        (known if entry.is_file(follow_symlinks=False) and is_known(path.parts) else others).append(path)
    return sorted(known), sorted(others)


def _below(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder but folders and hidden names."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))
            else:
                yield entry


def _parsed(content: bytes) -> Any:
    """The value of a YAML text, section by section where it is a mapping of sections. Raises ValueError,
    RecursionError, yaml.YAMLError."""
    sections = _SECTION.findall(content)
    if sections and sum(map(len, sections)) == len(content):
        try:
            return {name: value for section in sections for name, value in pickle.loads(_section(section)).items()}
        except (yaml.YAMLError, ValueError, RecursionError):
            pass  # sections that only the whole explains, such as a reference to another one
    return _load(content)


@lru_cache(SECTIONS)
def _section(content: bytes) -> bytes:
    """A section as a pickle: each cell gets its own copy."""
    return pickle.dumps(_load(content))


def _load(content: bytes) -> Any:
    """The value of a YAML text, by the fastest loader that is safe for it."""
    is_flat = len(content) <= LARGEST and sum(map(content.count, NESTING)) <= DEEPEST
    return yaml.load(content.decode(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader) if is_flat
                     else yaml.SafeLoader)


def settings_digest(key: str, config: Mapping[str, Any]) -> str:
    """The digest of a cell's settings, in whatever order. Raises ValueError, TypeError for what JSON does not have."""
    return digest_of(key, json_text(dict(sorted(config.items()))))


def read_config(path: Path, content: bytes) -> dict[str, Any] | None:
    """The configuration of a cell.yaml with this content, without its schema and digest; None for an empty file. Raises
    StoreError for anything else, for a later schema, and where it was changed since it was written."""
    try:
        config = _parsed(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not YAML ({one_line(error)}): remove it to write it again") from error
    if config is None:
        return None
    if not isinstance(config, dict):
        raise StoreError(f"{path} is no configuration: remove it to write it again")
    if (schema := config.pop("schema", 1)) not in range(1, SCHEMA + 1):
        raise StoreError(f"{path}: schema {schema}: this version reads schemas up to {SCHEMA}; use the version that "
                         "wrote it, or a later one")
    digest = config.pop("digest", None)
    if digest is not None and not _is_digest(digest, path.parent.name, config):
        raise StoreError(f"{path} was changed since it was written, or copied from another cell: restore it, or remove "
                         "the folder to measure the cell anew")
    return config


def _is_digest(digest: Any, key: str, config: dict[str, Any]) -> bool:
    try:
        return bool(digest == settings_digest(key, config))
    except (TypeError, ValueError):  # a value or key that no cell has
        return False


def read_json(path: Path, content: bytes) -> Any:
    """The value in a JSON file with this content; a further measurement must have its digest. Raises StoreError for
    anything else."""
    try:
        return plain_of(path.parent.name, content, sealed=path.stem in RECORDS)
    except ValueError as error:
        complaint = f"{path} is not JSON as the store writes it ({one_line(error)})"
        raise StoreError(f"{complaint}: remove it to write it again") from error
