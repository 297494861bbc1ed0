"""Raw samples: one row per request, in memory as a numpy record array and on disk as Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

ABANDONED = -1
"""Status of a request that was still running when the drain ended."""
UNUSABLE = -2
"""Status of a reply that came with OK and could not be used."""
NOT_DONE = np.iinfo(np.int64).min
"""`done_ns` in memory of an abandoned request; null on disk."""

DTYPE = np.dtype(
    [
        ("cell", "<i4"),
        ("worker", "<i2"),
        ("scheduled_ns", "<i8"),
        ("sent_ns", "<i8"),
        ("done_ns", "<i8"),
        ("status", "<i1"),
        ("items", "<i4"),
        ("correct", "<i4"),
    ]
)
SCHEMA = pa.schema([pa.field(name, pa.from_numpy_dtype(DTYPE[name]), name == "done_ns") for name in DTYPE.names or ()])

Rows = npt.NDArray[np.void]


def rows(records: Iterable[tuple[int, ...]]) -> Rows:
    """A record array of `DTYPE` from tuples in its column order."""
    return np.array(list(records), dtype=DTYPE)


def to_table(samples: Rows) -> pa.Table:
    """The samples as an Arrow table of `SCHEMA`; a request without an end gets a null there."""
    columns = [
        pa.array(
            np.ascontiguousarray(samples[name]),
            type=SCHEMA.field(name).type,
            mask=samples[name] == NOT_DONE if name == "done_ns" else None,
        )
        for name in SCHEMA.names
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write(path: Path, chunks: Iterable[Rows]) -> int:
    """Writes chunks of samples to one Parquet file, a row group each, and returns the number of rows."""
    count = 0
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for chunk in chunks:
            if len(chunk):
                writer.write_table(to_table(chunk))
                count += len(chunk)
    return count


def read(path: Path) -> Rows:
    """All samples of a file, shape [n]. Raises OSError or pyarrow.ArrowInvalid if it is missing or not such a file."""
    with pq.ParquetFile(path) as source:
        return _join(source.read_row_group(index) for index in range(source.num_row_groups))


def _join(tables: Iterator[pa.Table]) -> Rows:
    parts = []
    for table in tables:
        part = np.empty(len(table), DTYPE)
        for name in DTYPE.names or ():
            column = table.column(name)
            part[name] = (column.fill_null(pa.scalar(NOT_DONE, pa.int64())) if name == "done_ns" else column).to_numpy()
        parts.append(part)
    return np.concatenate(parts) if parts else np.empty(0, DTYPE)
