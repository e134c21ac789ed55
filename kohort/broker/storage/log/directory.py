"""The files of one partition: scanning its directory, and deleting segments.

A segment is deleted by renaming its files to *.deleted, the .log first: from then on it is not
loaded again, even after a crash. The files themselves are removed later (file.delete.delay.ms)
and in any thread, because unlinking a gigabyte can take a tenth of a second.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kohort.broker.storage.checkpoints.segment_checksums import FILE_NAME as CHECKSUMS_FILE
from kohort.broker.storage.checkpoints.segment_checksums import SegmentChecksums
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    split_file_name,
)
from kohort.broker.storage.segment.indexes import RELATIVE_OFFSET_MAX, OffsetIndex
from kohort.broker.storage.segment.segment import LogSegment
from kohort.broker.storage.segment.swap import complete_swaps

logger = logging.getLogger(__name__)

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_LEFT_OVER_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)


@dataclass(slots=True, eq=False)
class DirectoryContent:
    checksums: SegmentChecksums
    segments: list[LogSegment] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    """Offsets of producer snapshots."""
    orphans: dict[int, int] = field(default_factory=dict)
    """Segments whose .log is missing although it was not deleted: base offset -> an offset that the
    segment had reached according to its offset index. If its transaction index remains, the segment
    is kept without batches.
    """


def scan_directory(files: FileSystem, directory: str) -> DirectoryContent:
    """Scan a partition's directory and clean up after a crash. Raises OSError."""
    entries = files.entries(directory)
    replaced: list[int] = []
    if any(entry.name.endswith(SWAP_SUFFIX) for entry in entries):
        replaced = complete_swaps(files, directory)
        entries = files.entries(directory)
    sizes: dict[int, dict[str, int]] = {}
    modified_ms: dict[int, int] = {}
    left_over: dict[str, tuple[int, str] | None] = {}
    snapshots: list[int] = []
    has_checksums = False
    for entry in entries:
        named = split_file_name(entry.name)
        if entry.name.endswith(_LEFT_OVER_SUFFIXES):
            left_over[entry.name] = named
            continue
        if named is None:
            has_checksums = has_checksums or entry.name == CHECKSUMS_FILE
            continue
        offset, suffix = named
        if suffix == SNAPSHOT_SUFFIX:
            snapshots.append(offset)
        elif suffix in SEGMENT_SUFFIXES:
            sizes.setdefault(offset, {})[suffix] = entry.size_bytes
            if suffix == LOG_SUFFIX:
                modified_ms[offset] = entry.modified_ms
    checksums = SegmentChecksums(files, directory, exists=has_checksums)
    checksums.drop_segments(replaced)
    content = DirectoryContent(checksums, snapshots=sorted(snapshots))
    deleted = {
        named[0]
        for named in left_over.values()
        if named and named[1].startswith(f"{LOG_SUFFIX}.") and named[1].endswith(DELETED_SUFFIX)
    }
    for base_offset, found in sorted(sizes.items()):
        if LOG_SUFFIX not in found and not _keep_orphan(
            files, directory, content, base_offset, found, is_deleted=base_offset in deleted
        ):
            continue
        segment = LogSegment(files, directory, base_offset, found)
        segment.created_ms = modified_ms.get(base_offset, 0)
        content.segments.append(segment)
    _compare_indexes(files, content, sizes)
    for name in left_over:
        # Removed last: a deleted .log is the reason why its indexes were removed above.
        files.remove(f"{directory}/{name}")
    return content


def _compare_indexes(
    files: FileSystem, content: DirectoryContent, sizes: Mapping[int, Mapping[str, int]]
) -> None:
    """Set the checksum that each segment's transaction index must have, from the checksum file."""
    for segment in content.segments:
        size_bytes = sizes[segment.base_offset].get(TRANSACTION_INDEX_SUFFIX)
        is_unused = segment is content.segments[-1] and not segment.size_bytes
        if size_bytes is not None or not is_unused:
            segment.note_index_sums(files, size_bytes, content.checksums.sums)


def _reached(files: FileSystem, directory: str, base_offset: int, sizes: Mapping[str, int]) -> int:
    """Return the offset after the last entry of a segment's offset index; the base offset if the
    index is empty or invalid.
    """
    path = f"{directory}/{file_name(base_offset, INDEX_SUFFIX)}"
    index = OffsetIndex(files, path, base_offset, sizes.get(INDEX_SUFFIX))
    try:
        last_offset = index[len(index) - 1].last_offset if len(index) else base_offset - 1
    finally:
        index.close()
    return last_offset + 1 if last_offset <= base_offset + RELATIVE_OFFSET_MAX else base_offset


def _keep_orphan(
    files: FileSystem,
    directory: str,
    content: DirectoryContent,
    base_offset: int,
    sizes: dict[str, int],
    *,
    is_deleted: bool,
) -> bool:
    """Remove the indexes of a segment without a .log. If the segment was not deleted, keep a
    transaction index, with an empty .log, and return True: its transactions may begin earlier.
    """
    if not is_deleted:
        content.orphans[base_offset] = _reached(files, directory, base_offset, sizes)
    stays = TRANSACTION_INDEX_SUFFIX in sizes and not is_deleted
    for suffix in list(sizes):
        if not stays or suffix != TRANSACTION_INDEX_SUFFIX:
            files.remove(f"{directory}/{file_name(base_offset, suffix)}")
            del sizes[suffix]
    if stays:
        files.create(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}")
    return stays


@dataclass(slots=True, eq=False)
class DeletedFiles:
    """Files renamed to *.deleted, to be removed later."""

    files: FileSystem
    waiting: list[tuple[int, str]] = field(default_factory=list)
    """The renamed files, oldest first: (wall-clock time of the renaming, new path)."""
    _taken: set[str] = field(default_factory=set)
    """The paths in `waiting`."""

    def delete_segment(
        self, segment: LogSegment, wall_ms: int, *, with_snapshot: bool = True
    ) -> None:
        """Remove a segment from the log. Raises OSError; the segment is then still in the log."""
        segment.is_deleted = True
        try:
            self._rename(segment.path(LOG_SUFFIX), wall_ms)
        except OSError:
            segment.is_deleted = False
            raise
        segment.close()
        suffixes = [INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX]
        suffixes += [SNAPSHOT_SUFFIX] * with_snapshot
        self.delete_files([segment.path(suffix) for suffix in suffixes], wall_ms)

    def delete_files(self, paths: Iterable[str], wall_ms: int) -> None:
        """Rename the other files of a deleted .log to *.deleted; failures are only logged."""
        for path in paths:
            try:
                self._rename(path, wall_ms)
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.warning("%s cannot be deleted: %s", path, error)

    def remove_due(self, wall_ms: int, delay_ms: int) -> int:
        """Remove files that were renamed at least `delay_ms` ago; return how many were due.

        May run in any thread. Files that cannot be removed are left for the next start.
        """
        removed = 0
        while self.waiting and self.waiting[0][0] + delay_ms <= wall_ms:
            _, path = self.waiting.pop(0)
            try:
                self.files.remove(path)
            except OSError as error:
                logger.warning("%s cannot be removed: %s", path, error)
            # From here on, another file may use the name.
            self._taken.discard(path)
            removed += 1
        return removed

    def _rename(self, path: str, wall_ms: int) -> None:
        target = self._free_name(path)
        self.files.rename(path, target)
        self.waiting.append((wall_ms, target))
        self._taken.add(target)

    def _free_name(self, path: str) -> str:
        """Return a *.deleted name that no file in `waiting` has: compaction may replace a segment
        again.
        """
        target = path + DELETED_SUFFIX
        number = 1
        while target in self._taken:
            target = f"{path}.{number}{DELETED_SUFFIX}"
            number += 1
        return target
