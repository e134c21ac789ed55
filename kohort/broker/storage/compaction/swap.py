"""Replacing segments of a log by one that holds what is left of them, safe against crashes.

The new files are written under *.cleaned. Then, in this order:

1. the indexes and at last the .log become *.swap: from here on the replacement is decided;
2. the old segments become *.deleted;
3. the indexes and at last the .log get their final names.

A start that finds a .log.swap goes on from there; anything less is thrown away. Each step relies on
the renames before it, which file systems with a metadata journal keep in order. All three are done
in one go: a replacement that was decided and then left lying would bring back, at a later start,
what compaction or retention has taken away meanwhile.
"""

from __future__ import annotations

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
"""Where a replacement ends is not known before it is read."""

# The .log last: what it stands for is then complete.
_IN_ORDER = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)


def cleaned_path(directory: str, base_offset: int, suffix: str) -> str:
    """Where a file of the replacement is written."""
    return f"{directory}/{file_name(base_offset, suffix)}{CLEANED_SUFFIX}"


def decide_swap(files: FileSystem, directory: str, base_offset: int) -> None:
    """Step 1. The files must be on the disk. Raises OSError: nothing is decided then."""
    for suffix in _IN_ORDER:
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if files.exists(path + CLEANED_SUFFIX):
            files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)


def finish_swap(files: FileSystem, directory: str, base_offset: int) -> None:
    """Step 3. Raises OSError."""
    for suffix in _IN_ORDER:
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if files.exists(path + SWAP_SUFFIX):
            files.rename(path + SWAP_SUFFIX, path)


def discard_cleaned(files: FileSystem, directory: str, base_offset: int) -> None:
    """Throw a replacement away that is not decided. Raises OSError."""
    for suffix in _IN_ORDER:
        for state in (CLEANED_SUFFIX, SWAP_SUFFIX):
            path = f"{directory}/{file_name(base_offset, suffix)}{state}"
            if files.exists(path):
                files.remove(path)


def complete_swaps(files: FileSystem, directory: str) -> None:
    """At a start: carry out replacements that were decided, throw others away. Raises OSError."""
    names = [entry.name for entry in files.entries(directory)]
    found = [offset_in(name, LOG_SUFFIX + SWAP_SUFFIX) for name in names]
    decided = [base_offset for base_offset in found if base_offset is not None]
    prefixes = tuple(file_name(base_offset, ".") for base_offset in decided)
    for name in names:
        if name.endswith(SWAP_SUFFIX) and not name.startswith(prefixes):
            files.remove(f"{directory}/{name}")
    for base_offset in decided:
        _complete(files, directory, base_offset, names)


def _complete(files: FileSystem, directory: str, base_offset: int, names: list[str]) -> None:
    path = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{SWAP_SUFFIX}"
    offsets = [offset_in(name, LOG_SUFFIX) for name in names]
    replaced = sorted(offset for offset in offsets if offset is not None and offset >= base_offset)
    end_offset = _end_of(files, path, base_offset)
    if end_offset is None:
        # It was complete and on the disk when this was decided, so it was damaged since.
        if base_offset in replaced:
            logger.error("%s is damaged; the segments that it was made from stay", path)
            discard_cleaned(files, directory, base_offset)
            return
        end_offset = base_offset
    logger.info("%s takes its place", path)
    for offset in replaced:
        if offset < end_offset:
            for suffix in _IN_ORDER[::-1]:
                name = f"{directory}/{file_name(offset, suffix)}"
                if files.exists(name):
                    files.rename(name, name + DELETED_SUFFIX)
    finish_swap(files, directory, base_offset)
    files.sync_directory(directory)


def _end_of(files: FileSystem, path: str, base_offset: int) -> int | None:
    """The offset behind the last batch of a replacement; None if it is damaged."""
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
