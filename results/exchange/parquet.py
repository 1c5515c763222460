"""A store as a Parquet dataset with a card, for `datasets.load_dataset(FOLDER, "samples")` or a
hub.

    README.md                     the card
    data/cells.parquet            a row per cell: its configuration, machine and metrics
    data/samples/<cell>.parquet   a row per answer, with its times and those of the baseline
    data/traces.parquet           a row per verified position of the cells that were traced

Of a value that is an absolute path only the last part is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path, PurePath
from typing import Any

import pandas as pd
import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined

from results.exchange.base import ExchangeError, Source, Written
from results.metrics.summary import summary_of
from results.store.files import replace_text, replacing
from results.store.sample import Sample, Timed, TimedRun
from results.store.traces import TraceFolder

CARD = Environment(
    loader=PackageLoader("results.exchange"),
    undefined=StrictUndefined,
    trim_blocks=True,
    autoescape=False,
).get_template("dataset_card.md.j2")
TYPES = {
    "int": pa.int64(),
    "bool": pa.bool_(),
    "float": pa.float64(),
    "float | None": pa.float64(),
    "list[int]": pa.list_(pa.int32()),
    "list[str]": pa.list_(pa.string()),
}
"""Type of a field of `Sample` -> that of its column; other columns hold texts."""
SAMPLES = pa.schema(
    {"cell": pa.string(), "session": pa.string()}
    | {field.name: TYPES.get(str(field.type), pa.string()) for field in fields(Sample)}
    | {
        f"{side}_{field.name}": TYPES.get(str(field.type), pa.string())
        for side in ("timed", "baseline")
        for field in fields(TimedRun)
    }
)
"""All files of samples have these columns, named as in samples.jsonl and timed.jsonl."""
SETTINGS = ("pair", "drafter", "rule", "task")
_PRIVATE = re.compile(r"argv|SLURM_.*")
"""Keys that are left out: commands, and the scheduler's variables, which name users, accounts and
hosts."""
_ABSOLUTE = re.compile(r"(^|[=:,\[\s])([~/][^\s,\]]*)")


def write(sources: Iterable[Source], folder: Path) -> Iterator[Written]:
    """Write the dataset into `folder`. Raises ExchangeError for a store without answers,
    StoreError."""
    data = folder / "data"
    cells, traces = list[dict[str, Any]](), list[pd.DataFrame]()
    for source in sources:
        key = source.folder.key
        answers = [_sample(key, sample, timed) for sample, timed in source.answers()]
        frame = pd.DataFrame(answers, columns=SAMPLES.names, dtype=object)
        yield _write(frame, data / "samples" / f"{key}.parquet", schema=SAMPLES)
        cells.append(_cell(source))
        trace = TraceFolder(source.folder)
        if trace.exists():
            traces.append(trace.frame().assign(cell=key))
    if not cells:
        raise ExchangeError(
            f"{folder}: nothing to write: the store holds no measured cell with answers"
        )
    yield _write(pd.DataFrame(cells), data / "cells.parquet")
    if traces:
        yield _write(pd.concat(traces), data / "traces.parquet")
    names = {name: sorted({str(cell[name]) for cell in cells}) for name in SETTINGS}
    total = sum(cell["answers"] for cell in cells)
    card = CARD.render(answers=total, cells=len(cells), traced=bool(traces), **names)
    replace_text(folder / "README.md", card)
    yield folder / "README.md", 1


def _write(frame: pd.DataFrame, path: Path, **options: Any) -> Written:
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False, compression="zstd", **options)
    return path, len(frame)


def _sample(cell: str, sample: Sample, timed: Timed | None) -> dict[str, Any]:
    """A row of samples."""
    row = {"cell": cell, **_texts(asdict(sample))}
    if timed is not None:
        for side, run in zip(("timed", "baseline"), timed.runs, strict=True):
            row |= {f"{side}_{name}": value for name, value in _texts(asdict(run)).items()}
        row["session"] = timed.started
    return row


def _cell(source: Source) -> dict[str, Any]:
    """A row of cells.parquet."""
    config, folder = source.config, source.folder
    summary = summary_of(folder, source.baseline, source.metric, source.proportion)
    return {
        "cell": folder.key,
        "baseline": source.baseline.key,
        **{name: (config.get(name) or {}).get("name") for name in SETTINGS},
        "temperature": (config.get("decoding") or {}).get("temperature"),
        "draft_length": (config.get("draft") or {}).get("length"),
        "seed": config.get("seed"),
        "config": json.dumps(public(config)),
        "environment": json.dumps(public(folder.environment() or {})),
        "failure": folder.failure(),
        "answers": len(folder.good_samples()),
        **_texts(summary.plain()),
    }


def _texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its mappings as JSON."""
    return {
        name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()
    }


def public(data: Any) -> Any:
    """Plain data without private keys, and with the last part in place of each absolute path, which
    may name users."""
    if isinstance(data, Mapping):
        return {name: public(value) for name, value in data.items() if not _PRIVATE.fullmatch(name)}
    if isinstance(data, list):
        return [public(value) for value in data]
    if isinstance(data, str):
        return _ABSOLUTE.sub(lambda match: match[1] + PurePath(match[2]).name, data)
    return data
