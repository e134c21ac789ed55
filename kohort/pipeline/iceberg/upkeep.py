"""Small files put together, old snapshots removed with the files that no other one has.

Both also while others write: what is put together is committed only if its files are still the
table's, and what is removed belongs to no snapshot that the table has.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files

from kohort.pipeline.errors import ConflictError
from kohort.pipeline.iceberg.catalogs import explained

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

SMALL_BYTES: Final = 16 << 20
"""Files below are put together."""

TOGETHER_BYTES: Final = 32 << 20
"""How much of a table, as it is stored, is in memory at a time."""

TOGETHER_FILES: Final = 1_000

TRIES: Final = 10
"""A commit is tried so often; whenever one is refused another has got on."""

_NOT_OURS: Final = "gc.enabled"
"""The property that is `false` for a table whose files belong to somebody else."""


def compact(load: Callable[[], Table]) -> None:
    """Puts small files of one partition together; `load` gives the table as it is now.

    Files that others have removed or marked meanwhile are left as they are.
    """
    table = load()
    for tasks in _together(table):
        rows = ArrowScan(
            table.metadata, table.io, table.schema(), row_filter=AlwaysTrue()
        ).to_table(tasks)
        written = list(
            _dataframe_to_data_files(
                table_metadata=table.metadata, df=rows, io=table.io, write_uuid=uuid.uuid4()
            )
        )
        former = [task.file for task in tasks]
        if not _exchange(load, former, written):
            _remove(table, (file.file_path for file in written))


def expire(load: Callable[[], Table], hours: int) -> None:
    """Removes the snapshots that have not been the table for so many hours, with their files.

    Branches and tags stay. A kill in between leaves files behind that are in no snapshot.
    """
    table = load()
    if table.properties.get(_NOT_OURS, "true").lower() == "false":
        return
    old = list(_superseded(table, datetime.now(UTC) - timedelta(hours=hours)))
    if not old:
        return
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in old]).commit()
    table = load()
    left = {one.snapshot_id for one in table.snapshots()}
    gone = [one for one in old if one.snapshot_id not in left]
    kept = {one.manifest_path: one for one in _manifests(table, table.snapshots())}
    stale = {
        one.manifest_path: one for one in _manifests(table, gone) if one.manifest_path not in kept
    }
    # A manifest that is left may still tell of a file that it was removed.
    files = _data_files(table, stale.values(), live=False)
    if files:
        files -= _data_files(table, kept.values(), live=True)
    _remove(table, [*files, *stale, *(one.manifest_list for one in gone)])


def _together(table: Table) -> Iterator[list[FileScanTask]]:
    """Files to be put together, two at least, with rows of one partition."""
    open_bins: dict[object, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        # Rows that others have marked as deleted are for them to remove.
        if (
            task.delete_files
            or task.file.spec_id != table.spec().spec_id
            or task.file.file_size_in_bytes >= SMALL_BYTES
        ):
            continue
        key = repr(task.file.partition)
        begun = open_bins.setdefault(key, [])
        size = sum(one.file.file_size_in_bytes for one in begun)
        if len(begun) >= TOGETHER_FILES or size + task.file.file_size_in_bytes > TOGETHER_BYTES:
            if len(begun) > 1:
                yield begun
            begun = open_bins[key] = []
        begun.append(task)
    yield from (begun for begun in open_bins.values() if len(begun) > 1)


def _exchange(load: Callable[[], Table], former: list[DataFile], written: list[DataFile]) -> bool:
    """Returns whether `written` are in the place of `former` now, which may be gone by now.

    Another run may be quicker each time; the next night's will find the files again.
    """
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
    """Snapshots in whose place another one was by then, and to which no branch or tag points."""
    pointed_at = {ref.snapshot_id for ref in table.metadata.refs.values()}
    by_time = sorted(table.snapshots(), key=lambda one: one.timestamp_ms)
    followed_at = {one.parent_snapshot_id: one.timestamp_ms for one in by_time}
    before_ms = before.timestamp() * 1000
    for one in table.snapshots():
        ended_ms = followed_at.get(one.snapshot_id, one.timestamp_ms)
        if one.snapshot_id not in pointed_at and ended_ms < before_ms:
            yield one


def _manifests(table: Table, snapshots: Iterable[Snapshot]) -> Iterator[ManifestFile]:
    for one in snapshots:
        yield from one.manifests(table.io)


def _data_files(table: Table, manifests: Iterable[ManifestFile], *, live: bool) -> set[str]:
    return {
        entry.data_file.file_path
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=live)
    }


def _remove(table: Table, paths: Iterable[str]) -> None:
    for path in paths:
        # Another run may have been here.
        with contextlib.suppress(FileNotFoundError):
            table.io.delete(path)
