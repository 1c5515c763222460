"""Configuration and summary of a cell's folder, parsed whole."""

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
"""Of the files of a cell. Raise it, and read what older cells hold, when a file comes to mean something else; cells
without a schema are of the first."""
NESTING, LARGEST = (b"[", b"{", b"- ", b"? "), 1 << 20
"""What a level of nesting begins with, but for indentation, which takes many bytes; bytes of a large file."""
DEEPEST = 2000
"""libyaml's parser, ten times as quick as Python's, ends the process at a hundred thousand levels."""


def _loader(content: bytes) -> Any:
    """The quickest loader that is safe for this content."""
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
        raise StoreError(f"{path}: schema {schema}: this version reads schemas up to {SCHEMA}; take the version that "
                         "wrote it, or a later one")
    return [config]


def read_summary(path: Path, content: bytes) -> list[Summary]:
    """The summary of a summary.json with this content. Raises StoreError for anything else."""
    try:
        return [Summary.model_validate(unsealed(from_json(content)))]
    except ValueError as error:
        fault = first_fault(error) if isinstance(error, ValidationError) else one_line(error)
        raise StoreError(f"{path} is not a summary ({fault}): remove it to write it again") from error
