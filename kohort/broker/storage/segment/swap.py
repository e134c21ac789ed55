"""Crash-safe replacement of segments of a log by a compacted one.

The new files are written as *.cleaned. Then, in this order:

1. the indexes and finally the .log are renamed to *.swap, which commits the replacement;
2. the old segments are renamed to *.deleted;
3. the indexes and finally the .log get their final names.

A start that finds a .log.swap completes the replacement; otherwise the new files are deleted. Each
step relies on the renames before it, which file systems with a metadata journal keep in order. All
three are done without interruption: a committed replacement that is not completed at once would, at
a later start, restore records that compaction or retention has removed meanwhile.
"""

import logging

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    offset_in,
)
from kohort.broker.storage.segment.batch_walk import FEW_BYTES, walk_batches

logger = logging.getLogger(__name__)

OFFSET_MAX = (1 << 63) - 1
"""Placeholder for the end of a compacted segment until its batches have been read."""

# The .log is renamed last: its new name proves that the other files are renamed.
_IN_ORDER = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)


def cleaned_path(directory: str, base_offset: int, suffix: str) -> str:
    """Return the *.cleaned path of a replacement's file."""
    return f"{directory}/{file_name(base_offset, suffix)}{CLEANED_SUFFIX}"


def decide_swap(files: FileSystem, directory: str, base_offset: int) -> None:
    """Perform step 1 (see the module): rename the new files, which must be on disk, to *.swap.
    After an OSError the replacement is not committed.
    """
    for suffix in _IN_ORDER:
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if files.exists(path + CLEANED_SUFFIX):
            files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)


def finish_swap(files: FileSystem, directory: str, base_offset: int) -> None:
    """Perform step 3 (see the module): give the new files their final names. Raises OSError."""
    for suffix in _IN_ORDER:
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if files.exists(path + SWAP_SUFFIX):
            files.rename(path + SWAP_SUFFIX, path)


def discard_cleaned(files: FileSystem, directory: str, base_offset: int) -> None:
    """Delete the new files of an uncommitted replacement (no .log.swap). Raises OSError."""
    for suffix in _IN_ORDER:
        for state in (CLEANED_SUFFIX, SWAP_SUFFIX):
            path = f"{directory}/{file_name(base_offset, suffix)}{state}"
            if files.exists(path):
                files.remove(path)


def complete_swaps(files: FileSystem, directory: str) -> list[int]:
    """Complete committed replacements and return their base offsets; delete other *.swap files."""
    names = [entry.name for entry in files.entries(directory)]
    offsets = [offset_in(name, LOG_SUFFIX + SWAP_SUFFIX) for name in names]
    decided = [base_offset for base_offset in offsets if base_offset is not None]
    prefixes = tuple(file_name(base_offset, ".") for base_offset in decided)
    for name in names:
        if name.endswith(SWAP_SUFFIX) and not name.startswith(prefixes):
            files.remove(f"{directory}/{name}")
    for base_offset in decided:
        _complete(files, directory, base_offset, names)
    return decided


def _complete(files: FileSystem, directory: str, base_offset: int, names: list[str]) -> None:
    path = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{SWAP_SUFFIX}"
    offsets = [offset_in(name, LOG_SUFFIX) for name in names]
    replaced = sorted(offset for offset in offsets if offset is not None and offset >= base_offset)
    end_offset = _end_of(files, path, base_offset)
    if end_offset is None or end_offset not in offsets:
        # The replacement was complete and on disk when it was committed, and ended where the next
        # segment starts; so it was damaged or truncated later.
        if base_offset in replaced:
            logger.error("%s is damaged; the segments that it replaces are kept", path)
            discard_cleaned(files, directory, base_offset)
            return
        logger.error("%s is damaged; offsets from %s on are lost", path, end_offset or base_offset)
        end_offset = end_offset or base_offset
    logger.info("Completing the replacement by the compacted segment %s", path)
    for offset in replaced:
        if offset < end_offset:
            for suffix in _IN_ORDER[::-1]:
                name = f"{directory}/{file_name(offset, suffix)}"
                if files.exists(name):
                    files.rename(name, name + DELETED_SUFFIX)
    finish_swap(files, directory, base_offset)
    files.sync_directory(directory)


def _end_of(files: FileSystem, path: str, base_offset: int) -> int | None:
    """Return the offset after the last batch of a .log; None if the file is damaged."""
    file = files.file(path)
    end_offset = base_offset
    try:
        for _, header in walk_batches(
            file,
            0,
            file.size(),
            expected_offset=base_offset,
            following_offset=OFFSET_MAX,
            chunk_bytes=FEW_BYTES,
        ):
            end_offset = header.next_offset
    except CorruptBatchError as error:
        logger.warning("%s", error)
        return None
    finally:
        file.close()
    return end_offset
