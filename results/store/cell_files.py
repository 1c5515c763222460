"""Parse a cell's configuration and summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from results.store.errors import StoreError, first_fault
from results.store.json_text import from_json
from results.store.reasons import one_line
from results.store.seals import unsealed
from results.store.summary import Summary

SCHEMA = 1
"""Version of the files of a cell. Raise it when the meaning of a file changes, and keep reading older versions; cells
without a schema have version 1."""
NESTING, LARGEST = (b"[", b"{", b"- ", b"? "), 1 << 20
"""Tokens that begin a level of nesting, except indentation, which takes many bytes; size of a large file in bytes."""
DEEPEST = 2000
"""Most levels for libyaml's parser: it is faster than Python's, but crashes the process at very deep nesting."""


def _loader(content: bytes) -> Any:
    """The fastest loader that is safe for this content."""
    is_flat = len(content) <= LARGEST and sum(map(content.count, NESTING)) <= DEEPEST
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader) if is_flat else yaml.SafeLoader


def read_config(path: Path, content: bytes) -> list[dict[str, Any]]:
    """The configuration of a cell.yaml with this content, without its schema; none in an empty file. Raises StoreError
    for anything else, and for a later schema."""
    try:
        config = yaml.load(content.decode(), Loader=_loader(content))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not YAML ({one_line(error)}): remove it to write it again") from error
    if config is None:
        return []
    if not isinstance(config, dict):
        raise StoreError(f"{path} is no configuration: remove it to write it again")
    if (schema := config.pop("schema", SCHEMA)) not in range(1, SCHEMA + 1):
        raise StoreError(f"{path}: schema {schema}: this version reads schemas up to {SCHEMA}; use the version that "
                         "wrote it, or a later one")
    return [config]


def read_summary(path: Path, content: bytes) -> list[Summary]:
    """The summary of a summary.json with this content. Raises StoreError for anything else."""
    try:
        return [Summary.model_validate(unsealed(from_json(content)))]
    except ValueError as error:
        fault = first_fault(error) if isinstance(error, ValidationError) else one_line(error)
        raise StoreError(f"{path} is not a summary ({fault}): remove it to write it again") from error
