"""Compacts small files, and expires old snapshots with the files that only they use.

Both are safe during writes: compacted files are committed only if their originals still belong to
the table, and a file is deleted only if no remaining snapshot uses it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet
from pyiceberg.io.pyarrow import parquet_files_to_data_files, pyarrow_to_schema

from kohort.pipeline.arrow import conformed
from kohort.pipeline.errors import TRIES, ConflictError
from kohort.pipeline.iceberg.catalogs import explained

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

SMALL_BYTES: Final = 16 << 20
"""Files below this size are compacted."""

GROUP_BYTES: Final = 32 << 20
"""Maximum total size of the files that are compacted together; their rows are held in memory."""

GROUP_FILES: Final = 1_000

_GC_ENABLED: Final = "gc.enabled"
"""The table property that is `false` if other tables use the files too."""


def compact(load: Callable[[], Table]) -> None:
    """Compact the small files of each partition, unless they were changed meanwhile.

    Rows are read and written by PyArrow: PyIceberg turns null lists and maps of structs into empty
    ones (https://github.com/apache/iceberg-python/issues/3833).
    """
    table = load()
    for tasks in _small_files(table):
        parts = [(task.file, _rows(table, task.file.file_path)) for task in tasks]
        former = [file for file, rows in parts if rows is not None]
        if len(former) > 1:
            path = table.location_provider().new_data_location(f"{uuid.uuid4()}.parquet")
            with table.io.new_output(path).create() as sink:
                rows = pa.concat_tables([rows for _, rows in parts if rows is not None])
                pyarrow.parquet.write_table(rows, sink, compression="zstd")
            written = list(parquet_files_to_data_files(table.io, table.metadata, iter([path])))
            if not _exchange(load, former, written):
                _remove(table, [path])


def _rows(table: Table, path: str) -> pa.Table | None:
    """Return the rows of a file with the table's present columns; None if a column of the file was
    renamed or removed since, or the fields of a nested column have changed.
    """
    with table.io.new_input(path).open() as source:
        rows = pyarrow.parquet.ParquetFile(source).read()
    stored, names = (
        _names(pyarrow_to_schema(rows.schema, table.name_mapping())),
        _names(table.schema()),
    )
    # Columns that were added after the file was written are null in its rows.
    present = {
        number: name
        for number, name in names.items()
        if name.partition(".")[0] in rows.column_names
    }
    return conformed(rows, table.schema().as_arrow()) if stored == present else None


def _names(schema: Schema) -> dict[int, str]:
    """Return the names of all columns by field id; the name of a nested column includes its
    parents.
    """
    return {number: schema.find_column_name(number) or "" for number in schema.field_ids}


def expire(load: Callable[[], Table], hours: int) -> None:
    """Remove snapshots replaced over `hours` ago, with their files. Branches and tags stay."""
    table = load()
    if table.properties.get(_GC_ENABLED, "true").lower() == "false":
        return
    old = list(_superseded(table, datetime.now(UTC) - timedelta(hours=hours)))
    if not old:
        return
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in old]).commit()
    table = load()
    remaining = {snapshot.snapshot_id for snapshot in table.snapshots()}
    expired = [snapshot for snapshot in old if snapshot.snapshot_id not in remaining]
    kept = {snapshot.manifest_path: snapshot for snapshot in _manifests(table, table.snapshots())}
    stale = {
        snapshot.manifest_path: snapshot
        for snapshot in _manifests(table, expired)
        if snapshot.manifest_path not in kept
    }
    # A kept manifest also lists removed files; only the files that it lists as live are in use.
    files = _data_files(table, stale.values(), live=False)
    if files:
        files -= _data_files(table, kept.values(), live=True)
    _remove(table, [*files, *stale, *(snapshot.manifest_list for snapshot in expired)])


def _small_files(table: Table) -> Iterator[list[FileScanTask]]:
    """Yield groups of small files of one partition, each to be compacted into one file."""
    open_groups: dict[object, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        # Files with rows that other writers marked as deleted are left to those writers.
        if (
            task.delete_files
            or task.file.spec_id != table.spec().spec_id
            or task.file.file_size_in_bytes >= SMALL_BYTES
        ):
            continue
        key = repr(task.file.partition)
        group = open_groups.setdefault(key, [])
        size = sum(file_task.file.file_size_in_bytes for file_task in group)
        if len(group) >= GROUP_FILES or size + task.file.file_size_in_bytes > GROUP_BYTES:
            if len(group) > 1:
                yield group
            group = open_groups[key] = []
        group.append(task)
    yield from (group for group in open_groups.values() if len(group) > 1)


def _exchange(load: Callable[[], Table], former: list[DataFile], written: list[DataFile]) -> bool:
    """Replace `former` by `written`; return False if `former` are no longer part of the table."""
    paths = {file.file_path for file in former}
    for _ in range(TRIES):
        table = load()
        live = {task.file.file_path for task in table.scan().plan_files() if not task.delete_files}
        if not paths <= live:
            return False
        with contextlib.suppress(ConflictError):
            with (
                explained("the commit"),
                table.transaction() as transaction,
                transaction.update_snapshot().overwrite() as change,
            ):
                for file in former:
                    change.delete_data_file(file)
                for file in written:
                    change.append_data_file(file)
            return True
    return False


def _superseded(table: Table, before: datetime) -> Iterator[Snapshot]:
    """Yield the snapshots that were replaced before `before` and have no tag or branch."""
    pointed_at = {ref.snapshot_id for ref in table.metadata.refs.values()}
    by_time = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    followed_at = {snapshot.parent_snapshot_id: snapshot.timestamp_ms for snapshot in by_time}
    before_ms = before.timestamp() * 1000
    for snapshot in table.snapshots():
        ended_ms = followed_at.get(snapshot.snapshot_id, snapshot.timestamp_ms)
        if snapshot.snapshot_id not in pointed_at and ended_ms < before_ms:
            yield snapshot


def _manifests(table: Table, snapshots: Iterable[Snapshot]) -> Iterator[ManifestFile]:
    for snapshot in snapshots:
        yield from snapshot.manifests(table.io)


def _data_files(table: Table, manifests: Iterable[ManifestFile], *, live: bool) -> set[str]:
    return {
        entry.data_file.file_path
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=live)
    }


def _remove(table: Table, paths: Iterable[str]) -> None:
    for path in paths:
        # Another run may have deleted the file.
        with contextlib.suppress(FileNotFoundError):
            table.io.delete(path)
