"""How large a file of rows is once it is unpacked: a small one must not fill the memory."""

from __future__ import annotations

import gzip
from pathlib import Path

from tasks.base import TaskError

GZIP_RATIO, MOST_RATIO, LEAST_LIMIT = 1032, 200, 64 << 20
"""gzip packs 1032 bytes into one at best; text that repeats itself about 50. Below 64 MiB no ratio matters."""
MOST_ROWS, BATCH_BYTES = 1000, 256 << 20
"""Of a Parquet file that are looked at together: rows, and the bytes that these have at most if each row holds all that
its column declares."""


def check_unpacked_size(path: Path) -> None:
    """Raises TaskError for a gzip or Parquet file that unpacks to far more than rows of text do, before it fills the
    memory; OSError and what pyarrow raises for one that cannot be read."""
    size = path.stat().st_size
    most = max(LEAST_LIMIT, MOST_RATIO * size)
    if (path.suffix == ".gz" and GZIP_RATIO * size > most and _gzip_exceeds(path, most)) or (
            path.suffix != ".gz" and ".parquet" in path.suffixes and _parquet_exceeds(path, most)):
        raise TaskError(f"{path}: {size} bytes unpack to more than {most}, which no file of rows does; unpack it and "
                        "give what it holds")


def _gzip_exceeds(path: Path, most: int) -> bool:
    with gzip.open(path, "rb") as file:
        unpacked = 0
        while unpacked <= most and (part := file.read(1 << 20)):
            unpacked += len(part)
    return unpacked > most


def _parquet_exceeds(path: Path, most: int) -> bool:
    """Runs and dictionaries unpack without bound, and what a file declares counts neither."""
    import pyarrow.parquet as pq  # slow to import

    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        columns = [group.column(number) for group in groups for number in range(group.num_columns)]
        declared = sum(column.total_uncompressed_size for column in columns)
        if declared > most or file.metadata.num_rows + sum(column.num_values for column in columns) > most:
            return True
        widest = max((column.total_uncompressed_size for column in columns), default=0)
        unpacked = 0
        for batch in file.iter_batches(batch_size=max(1, min(MOST_ROWS, BATCH_BYTES // max(1, widest)))):
            unpacked += batch.nbytes
            if unpacked > most:
                return True
    return False
