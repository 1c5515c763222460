"""A store as a Parquet dataset with a card, for `datasets.load_dataset(FOLDER, "samples")` or a
hub.

    README.md                      the card: YAML front matter with the configs samples, cells and
                                   traces
    data/cells.parquet             a row per cell: its configuration, machine and every metric of
                                   its summary
    data/samples/<cell>.parquet    a row per answer, with its times and those of the baseline
    data/traces/<cell>-00000.parquet  a row per verified position, where the cell was traced

Of a value that is an absolute path only the last part is written. A file of samples or traces holds
one cell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from results.exchange.base import ExchangeError, Source, Written
from results.metrics.catalog import METRICS
from results.store.cells import CellFolder
from results.store.errors import StoreError, one_line
from results.store.files import replace_text, replacing
from results.store.sample import Sample, Timed
from results.store.traces import TraceFolder

TEMPLATES = Environment(
    loader=PackageLoader("results.exchange"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,
)  # a card is Markdown, its names are folder names
_TEXTS, _WHOLE = pa.list_(pa.string()), pa.list_(pa.int32())
SAMPLES = pa.schema(
    {
        "cell": pa.string(),
        "id": pa.string(),
        "group": pa.string(),
        "text": pa.string(),
        "texts": _TEXTS,
        "output_ids": _WHOLE,
        "turn_tokens": _WHOLE,
        "committed": _WHOLE,
        "accepted": _WHOLE,
        "relaxed": pa.int64(),
        "greedier": pa.int64(),
        "drafted": pa.int64(),
        "pruned": pa.int64(),
        "finish": _TEXTS,
        "score": pa.float64(),
        "answer": pa.string(),
        "details": pa.string(),
        "flags": pa.string(),
        "seed": pa.int64(),
        "nll": pa.float64(),
        "prompt_tokens": pa.int64(),
        "timed_tokens": pa.int64(),
        "timed_cycles": pa.int64(),
        "prefill_s": pa.float64(),
        "decode_s": pa.float64(),
        "baseline_tokens": pa.int64(),
        "baseline_cycles": pa.int64(),
        "baseline_prefill_s": pa.float64(),
        "baseline_decode_s": pa.float64(),
        "session": pa.string(),
        "parted": pa.bool_(),
        "stalled": pa.bool_(),
    }
)
"""Names as in samples.jsonl and timed.jsonl; `details` and `flags` are JSON texts."""
_SETTINGS = ("pair", "drafter", "rule", "task")
_WORDS = ("metric", "events", "phases", "judge")
_COUNTS = (
    "asked",
    "n",
    "failed",
    "timed",
    "retimed",
    "stalled",
    "unscored",
    "tokens",
    "cycles",
    "repeats",
)
_METRICS = {
    **dict.fromkeys(_COUNTS, pa.int64()),
    **dict.fromkeys(("prefill_s", "decode_s", *METRICS), pa.float64()),
    **dict.fromkeys((f"{name}_ci95" for name in METRICS), pa.list_(pa.float64())),
    **dict.fromkeys(_WORDS, pa.string()),
}
"""What `Summary.plain` gives: numbers, intervals, and texts, of which all but the score's name are
JSON."""
CELLS = pa.schema(
    {
        "cell": pa.string(),
        "baseline": pa.string(),
        **{name: pa.string() for name in _SETTINGS},
        "temperature": pa.float64(),
        "draft_length": pa.int64(),
        "seed": pa.int64(),
        "config": pa.string(),
        "environment": pa.string(),
        "failure": pa.string(),
        "answers": pa.int64(),
        **_METRICS,
    }
)


def write(sources: Iterable[Source], folder: Path) -> Iterator[Written]:
    """Write the dataset into `folder`. Raises ExchangeError for a store without answers,
    StoreError."""
    data, rows, traced = folder / "data", list[dict[str, Any]](), list[CellFolder]()
    for source in sources:
        answers = [_sample(source.name, sample, timed) for sample, timed in source.answers()]
        yield _write_table(
            data / "samples" / f"{source.name}.parquet", pa.Table.from_pylist(answers, SAMPLES)
        )
        rows.append(_cell(source))
        if TraceFolder(source.folder).exists():
            traced.append(source.folder)
    if not rows:
        raise ExchangeError(
            f"{folder}: nothing to write: the store holds no measured cell with answers"
        )
    yield _write_table(data / "cells.parquet", pa.Table.from_pylist(rows, CELLS))
    yield from _write_traces(traced, data / "traces")
    replace_text(folder / "README.md", card(rows, bool(traced)))
    yield Written(folder / "README.md", 1)


def card(rows: list[dict[str, Any]], traced: bool) -> str:
    """The dataset card: front matter as a hub reads it, and what the columns are."""
    files = {
        "samples": "data/samples/*.parquet",
        "cells": "data/cells.parquet",
        "traces": "data/traces/*.parquet",
    }
    configs = [
        {
            "config_name": name,
            "data_files": path,
            **({"default": True} if name == "samples" else {}),
        }
        for name, path in files.items()
        if traced or name != "traces"
    ]
    front = yaml.safe_dump(
        {
            "pretty_name": "Leeway: relaxed speculative decoding, measured",
            "configs": configs,
            "tags": ["speculative-decoding", "benchmark", "leeway"],
        },
        sort_keys=False,
    )
    names = {name: sorted({str(row[name]) for row in rows}) for name in _SETTINGS}
    return TEMPLATES.get_template("dataset_card.md.j2").render(
        front=front,
        cells=len(rows),
        answers=sum(row["answers"] for row in rows),
        traced=traced,
        names=names,
    )


def _sample(cell: str, sample: Sample, timed: Timed | None) -> dict[str, Any]:
    row = {
        "cell": cell,
        **asdict(sample),
        "details": json.dumps(sample.details),
        "flags": json.dumps(sample.flags),
    }
    if timed is not None:
        own, base = timed.runs
        row |= {
            "timed_tokens": own.tokens,
            "timed_cycles": own.cycles,
            "prefill_s": own.prefill_s,
            "decode_s": own.decode_s,
            "baseline_tokens": base.tokens,
            "baseline_cycles": base.cycles,
            "baseline_prefill_s": base.prefill_s,
            "baseline_decode_s": base.decode_s,
            "session": timed.started,
            "parted": own.parted is not None,
            "stalled": own.stalled or base.stalled,
        }
    return row


def _cell(source: Source) -> dict[str, Any]:
    """A row of cells.parquet."""
    config, environment, folder = source.config, source.folder.environment() or {}, source.folder
    values = {
        name: value
        if _METRICS[name] != pa.string() or value is None or isinstance(value, str)
        else json.dumps(value)
        for name, value in source.summary().plain().items()
        if name in _METRICS
    }
    return {
        "cell": folder.key,
        "baseline": config.get("baseline"),
        **{name: source.part(name) for name in _SETTINGS},
        "temperature": (config.get("decoding") or {}).get("temperature"),
        "draft_length": (config.get("draft") or {}).get("length"),
        "seed": config.get("seed"),
        "config": json.dumps(public(config)),
        "environment": json.dumps(public(environment)),
        "failure": folder.failure(),
        "answers": len(folder.good_samples()),
        **values,
    }


_PRIVATE = re.compile(r"argv|SLURM_.*")
"""Keys that are left out: commands, and the scheduler's variables, which name users, accounts and
hosts."""
_ABSOLUTE = re.compile(r"(^|[=:,\[\s])([~/][^\s,\]]*)")


def public(data: Any) -> Any:
    """Plain data without private keys, and with the last part in place of each absolute path, which
    may name users."""
    if isinstance(data, Mapping):
        return {name: public(value) for name, value in data.items() if not _PRIVATE.fullmatch(name)}
    if isinstance(data, list):
        return [public(value) for value in data]
    return (
        _ABSOLUTE.sub(lambda found: found[1] + PurePath(found[2]).name, data)
        if isinstance(data, str)
        else data
    )


def _write_traces(folders: Iterable[CellFolder], into: Path) -> Iterator[Written]:
    """The traces of each cell, one file per traced batch, all with the columns of all."""
    parts = [
        (folder.key, part)
        for folder in folders
        for part in sorted((folder.path / "trace").glob("*.parquet"))
    ]
    if not parts:
        return
    schemas = [_plain(_read(pq.read_schema, part)) for _, part in parts]
    empty = pa.unify_schemas(
        [pa.schema({"cell": pa.string()}), *schemas], promote_options="permissive"
    ).empty_table()
    for (key, part), schema in zip(parts, schemas, strict=True):
        table = _read(pq.read_table, part).cast(schema)
        table = table.append_column("cell", pa.array([key] * len(table), pa.string()))
        whole = pa.concat_tables([empty, table], promote_options="permissive")
        yield _write_table(into / f"{key}-{part.stem}.parquet", whole)


def _read(read: Callable[[Path], Any], part: Path) -> Any:
    try:
        return read(part)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{part} is no trace ({one_line(error)}): remove it to trace its prompts again"
        ) from error


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema without metadata, its categories as texts."""
    return pa.schema(
        [
            pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
            for field in schema
        ]
    )


def _write_table(path: Path, table: pa.Table) -> Written:
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    return Written(path, len(table))
