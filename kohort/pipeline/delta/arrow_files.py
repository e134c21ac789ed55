"""Reads and writes rows in a table's Parquet files with Arrow."""

import io
import json
import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.pipeline.arrow import conformed
from kohort.pipeline.delta.log import DataFile, Wanted
from kohort.pipeline.delta.storage import Storage

ROW_GROUP_ROWS: Final = 20_000
"""Rows that are read or skipped together."""


def read(
    storage: Storage,
    root: str,
    files: Sequence[DataFile],
    schema: pa.Schema,
    wanted: Wanted | None = None,
) -> pa.Table:
    """Return the rows of these files in the columns of `schema`; null if a file lacks a column.

    With `wanted`, only row groups that may contain such rows are read; the result may have others
    too.
    """
    parts = [part for file in files for part in _read(storage, _at(root, file), schema, wanted)]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def write(
    storage: Storage, root: str, rows: pa.Table, indexed: Collection[str], now_ms: int
) -> dict[str, Any]:
    """Write the rows to a new file; return the action that adds it to the table.

    The action contains the minimum and maximum of the `indexed` columns.
    """
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    content = io.BytesIO()
    pq.write_table(rows, content, row_group_size=ROW_GROUP_ROWS, compression="snappy")
    data = content.getvalue()
    storage.write(f"{root}/{name}", data)
    return {
        "path": name,
        "partitionValues": {},
        "size": len(data),
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": json.dumps(_stats(rows, indexed)),
    }


def _at(root: str, file: DataFile) -> str:
    return file.path if "://" in file.path or file.path.startswith("/") else f"{root}/{file.path}"


def _read(storage: Storage, path: str, schema: pa.Schema, wanted: Wanted | None) -> list[pa.Table]:
    with storage.open(path) as file:
        parquet = pq.ParquetFile(file)
        present = set(parquet.schema_arrow.names)
        names = [name for name in schema.names if name in present]
        parts = [
            index
            for index in range(parquet.num_row_groups)
            if wanted is None or wanted.may_be_between(*_bounds(parquet.metadata.row_group(index)))
        ]
        if not parts:
            return []
        table = parquet.read_row_groups(parts, columns=names)
    return [conformed(table, schema)]


def _bounds(part: pq.RowGroupMetaData) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the minimum and maximum of the columns used to select rows."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for number in range(part.num_columns):
        column = part.column(number)
        name, stats = column.path_in_schema, column.statistics
        if name in {"group", "sequence"} and stats is not None and stats.has_min_max:
            least[name], greatest[name] = stats.min, stats.max
    return least, greatest


def _stats(rows: pa.Table, indexed: Collection[str]) -> dict[str, Any]:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in indexed:
        if name not in rows.column_names:
            continue
        column = rows[name]
        nulls[name] = column.null_count
        bounds = pc.min_max(column).as_py()
        if bounds["min"] is not None:
            least[name], greatest[name] = _statistic(bounds["min"]), _statistic(bounds["max"])
    return {
        "numRecords": rows.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }


def _statistic(value: Any) -> Any:  # noqa: ANN401 - any column value.
    """Return the value as in Delta's statistics: times with milliseconds."""
    if hasattr(value, "isoformat"):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return value
