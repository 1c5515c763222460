"""What became of the positions of verified draft trees: the traces of a cell, one Parquet file per
batch of prompts in the cell's folder.

    <cell>/trace/00000.parquet   one row per verified position, columns as in methods/trace.py, and
                                 `prompt` and `turn`; its metadata hold the prompts it covers and
                                 the threshold of the run
                 failure.json    why the last tracing pass could not be finished

A file appears whole or not at all, so an interrupted pass resumes after the last complete file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from results.store.cells import CellFolder
from results.store.errors import StoreError, one_line
from results.store.files import remove, replace_text, replacing
from results.store.records import from_json, json_text

if TYPE_CHECKING:  # pandas and pyarrow are slow to import, and few commands read or write a trace
    import pandas as pd
    from numpy.typing import NDArray


class Clause(StrEnum):
    """Two bits of a kept token decide its clause. S: the lossless test with the same random number
    accepts it. A: it is the target's argmax. The same words as `methods.rules.walk.Clause`.

    ROOT       not a draft token: the last committed token, from which the draft starts.
    STRICT     kept, and S.
    ARGMAX     kept, not S but A: greedier than the lossless rule, no relaxation.
    RELAXED    kept, neither S nor A.
    REJECTED   tested (its parent was kept, no earlier sibling was) and not kept.
    UNREACHED  never tested.
    DRAWN      not a draft token: the correction or bonus after the kept path.
    """

    ROOT = "root"
    STRICT = "strict"
    ARGMAX = "argmax"
    RELAXED = "relaxed"
    REJECTED = "rejected"
    UNREACHED = "unreached"
    DRAWN = "drawn"


KEPT = (Clause.STRICT, Clause.ARGMAX, Clause.RELAXED)
"""Accepted draft tokens."""
EMITTED = (*KEPT, Clause.DRAWN)
"""Tokens that were emitted (the end of an answer may have cut the last few)."""
TESTED = (*KEPT, Clause.REJECTED)
"""Draft tokens that were tested."""


META = b"leeway"
BOOLS = ("accept", "strict", "argmax", "by_threshold", "inside", "outside")
WORDS = ("prompt", "clause")
WHOLE = (
    "turn",
    "cycle",
    "node",
    "parent",
    "depth",
    "rank",
    "token",
    "top1",
    "top2",
    *(f"top{place}" for place in range(3, 6)),
    *(f"draft_top{place}" for place in range(1, 6)),
)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The threshold of a run: a token was kept iff `inside` where `score relation value` holds,
    else iff `outside`.

    name      the rule's option, such as "theta"
    relation  how the score is compared with the value
    value     the value of the option
    """

    name: str
    relation: Literal[">", ">=", "<", "<="]
    value: float


class TraceFolder:
    """The traces of one cell, whether or not it has any yet."""

    def __init__(self, cell: CellFolder, prompts: Collection[str] | None = None) -> None:
        """`prompts`: ids of those to read; None: all."""
        self.path = cell.path / "trace"
        self._prompts = prompts

    def part(self, number: int) -> Path:
        """The file of one batch, counted from 0."""
        return self.path / f"{number:05d}.parquet"

    def prompts(self, number: int) -> list[str] | None:
        """Ids of the prompts that a file covers; None where the file does not exist."""
        return _meta(self.part(number))["prompts"] if self.part(number).exists() else None

    def covered(self) -> set[str]:
        """Ids of all traced prompts."""
        return {prompt for part in self.path.glob("*.parquet") for prompt in _meta(part)["prompts"]}

    def add(
        self,
        prompts: Sequence[str],
        columns: Sequence[Mapping[str, NDArray[Any] | str | int]],
        threshold: Threshold | None,
    ) -> None:
        """Write a further file. `columns` holds a mapping for each prompt and turn: name -> array
        [positions], or one value for all positions; a name that a mapping lacks is NaN there."""
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq

        frames = [
            pd.DataFrame(dict(column)) for column in columns if len(np.atleast_1d(column["token"]))
        ]
        empty = pd.DataFrame({name: [] for name in (*WORDS, *WHOLE)})
        frame = pd.concat(frames, ignore_index=True) if frames else empty
        kinds = dict.fromkeys(WORDS, "category") | dict.fromkeys(WHOLE, "int32")
        types = {name: kinds.get(name, "float32") for name in frame.columns if name not in BOOLS}
        bools = {name: frame[name].fillna(False).astype(bool) for name in BOOLS if name in frame}
        table = pa.Table.from_pandas(frame.assign(**bools).astype(types), preserve_index=False)
        meta = {
            "prompts": list(prompts),
            "threshold": None if threshold is None else asdict(threshold),
        }
        table = table.replace_schema_metadata(
            {**(table.schema.metadata or {}), META: json.dumps(meta).encode()}
        )
        part = self.part(
            max((int(part.stem) for part in self.path.glob("*.parquet")), default=-1) + 1
        )
        with replacing(part) as temporary:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)

    def frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """All rows, with those of `columns` that exist (None: all); where no answer has a cycle
        none, with all of `columns`. Raises StoreError for a cell without traces."""
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq

        frames: list[pd.DataFrame] = []
        for part in self._parts():
            known = pq.read_schema(part).names
            wanted = None if columns is None else [name for name in columns if name in known]
            chosen = None if self._prompts is None else [("prompt", "in", list(self._prompts))]
            try:
                table = pq.read_table(
                    part, columns=wanted, filters=chosen, page_checksum_verification=True
                )
            except (OSError, pa.ArrowException) as error:
                complaint = f"{part} is damaged ({one_line(error)})"
                raise StoreError(f"{complaint}: remove it to trace its prompts again") from error
            frames.append(table.to_pandas())
        frames = [frame for frame in frames if len(frame)] or [_empty(frames[0], columns or ())]
        for frame in frames:  # categories of different parts differ
            for name in WORDS:
                if name in frame:
                    frame[name] = frame[name].astype(str)
        return pd.concat(frames, ignore_index=True)

    def threshold(self) -> Threshold | None:
        """The threshold of the traced run; None for a rule without one. Raises StoreError for a
        cell without traces."""
        thresholds = [_meta(part)["threshold"] for part in self._parts()]
        known = [threshold for threshold in thresholds if threshold is not None]
        return Threshold(**known[0]) if known else None

    def _parts(self) -> list[Path]:
        """The files, by their prompts: their numbers depend on which worker was the first to
        finish."""
        parts = sorted(self.path.glob("*.parquet"), key=lambda part: _meta(part)["prompts"])
        if not parts:
            raise StoreError(f"{self.path}: no traces; run the same command once with trace=true")
        return parts

    def exists(self) -> bool:
        """Has any batch been traced?"""
        return any(self.path.glob("*.parquet"))

    def write_failure(self, reason: str) -> None:
        """Record why the tracing pass could not be finished, in one line."""
        replace_text(self.path / "failure.json", json_text({"reason": one_line(reason)}) + "\n")

    def failure(self) -> str | None:
        """The reason of the last failed pass; None where none failed or it was cleared."""
        file = self.path / "failure.json"
        try:
            return one_line(from_json(file.read_bytes())["reason"]) if file.exists() else None
        except (ValueError, LookupError, TypeError) as error:
            raise StoreError(
                f"{file} holds no reason ({one_line(error)}): remove it to write it again"
            ) from error

    def clear_failure(self) -> None:
        """Forget the last failed pass."""
        remove(self.path / "failure.json")


def _empty(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The frame of no rows with further columns: a file of no rows does not know them."""
    missing = [name for name in columns if name not in frame]
    return frame.assign(
        **{name: np.empty(0, bool if name in BOOLS else np.float32) for name in missing}
    )


def _meta(part: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        meta: dict[str, Any] = from_json(pq.read_schema(part).metadata[META])
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise StoreError(
            f"{part} is no trace ({one_line(error)}): remove it to trace its prompts again"
        ) from error
    return meta
