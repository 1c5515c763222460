"""Traces of a cell on disk: a Parquet file for each batch of prompts, beside the cell's samples.

    <cell>/trace/00000.parquet   one row a verified position, see methods/trace.py; also `prompt` and `turn`. Its
                                 metadata hold the prompts it covers and the threshold of the run
                failure.json     why the last pass could not be finished

A file appears whole or not at all, so a pass goes on behind the last one that is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from results.store.cells import CellFolder
from results.store.errors import StoreError

META = b"leeway"
BOOLS = ("accept", "strict", "argmax", "by_threshold", "inside", "outside")
WORDS = ("prompt", "clause")
WHOLE = ("turn", "cycle", "node", "parent", "depth", "rank", "token", "top1", "top2")


@dataclass(frozen=True, slots=True)
class Threshold:
    """Where the run's threshold stood: a token was kept iff `inside` where `score relation value`, else `outside`."""

    name: str
    relation: Literal[">", ">=", "<", "<="]
    value: float


class TraceFolder:
    """The traces of one cell, whether or not there are any yet."""

    def __init__(self, cell: CellFolder):
        self.path = cell.path / "trace"

    def part(self, number: int) -> Path:
        return self.path / f"{number:05d}.parquet"

    def prompts(self, number: int) -> list[str] | None:
        """Which prompts a part covers, None where it is not there."""
        return _meta(self.part(number))["prompts"] if self.part(number).exists() else None

    def write(self, number: int, prompts: Sequence[str], columns: Sequence[Mapping[str, np.ndarray | str | int]],
              threshold: Threshold | None) -> None:
        """One part; `columns` are equally long arrays (or one value for all rows), a mapping for each prompt and turn,
        and a name that one of them lacks is NaN there."""
        frames = [pd.DataFrame(dict(one)) for one in columns if len(np.atleast_1d(one["token"]))]
        empty = pd.DataFrame({name: [] for name in (*WORDS, *WHOLE)})
        frame = pd.concat(frames, ignore_index=True) if frames else empty
        types = {name: "category" if name in WORDS else "int32" if name in WHOLE else "float32"
                 for name in frame.columns if name not in BOOLS}
        bools = {name: frame[name].fillna(False).astype(bool) for name in BOOLS if name in frame}
        table = pa.Table.from_pandas(frame.assign(**bools).astype(types), preserve_index=False)
        meta = {"prompts": list(prompts), "threshold": None if threshold is None else asdict(threshold)}
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), META: json.dumps(meta).encode()})
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f".{number:05d}.{os.getpid()}"
        pq.write_table(table, temporary, compression="zstd")
        os.replace(temporary, self.part(number))

    def frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """All rows; of `columns` those that exist. Raises StoreError where there are no traces."""
        frames = []
        for part in self._parts():
            known = pq.read_schema(part).names
            wanted = None if columns is None else [name for name in columns if name in known]
            frames.append(pq.read_table(part, columns=wanted).to_pandas())
        frames = [frame for frame in frames if len(frame)] or frames[:1]
        for frame in frames:  # categories of different parts differ
            for name in WORDS:
                if name in frame:
                    frame[name] = frame[name].astype(str)
        return pd.concat(frames, ignore_index=True)

    def threshold(self) -> Threshold | None:
        """Raises StoreError where there are no traces."""
        found = [held for part in self._parts() if (held := _meta(part)["threshold"]) is not None]
        return Threshold(**found[0]) if found else None

    def _parts(self) -> list[Path]:
        parts = sorted(self.path.glob("*.parquet"))
        if not parts:
            raise StoreError(f"{self.path}: no traces; run the same command once with trace=true")
        return parts

    def exists(self) -> bool:
        return any(self.path.glob("*.parquet"))

    def write_failure(self, reason: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        said = json.dumps({"reason": " ".join(reason.split())}) + "\n"
        (self.path / "failure.json").write_text(said, encoding="utf-8")

    def failure(self) -> str | None:
        file = self.path / "failure.json"
        return json.loads(file.read_text(encoding="utf-8"))["reason"] if file.exists() else None

    def clear_failure(self) -> None:
        (self.path / "failure.json").unlink(missing_ok=True)


def _meta(part: Path) -> dict:
    try:
        return json.loads(pq.read_schema(part).metadata[META])
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise StoreError(f"{part} is no trace ({' '.join(str(error).split())}): remove it to trace it anew") from error
