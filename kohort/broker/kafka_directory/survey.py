"""Examines a data directory before its conversion in either direction, and removes files that only
Kohort uses.

Kohort and Kafka identify a partition's directory by the topic id in it, and rename a directory
whose id differs from that of the known topic. So the ids are checked first, before any change.
Blocking code.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kohort.broker.kafka_directory.image import ClusterImage
from kohort.broker.kafka_directory.metadata_files import DIRECTORY, MetaProperties
from kohort.broker.storage.checked_file import CHECKSUM_SUFFIX
from kohort.broker.storage.checkpoints.clean_shutdown import FILE_NAME as CLEAN_MARK
from kohort.broker.storage.checkpoints.offset_checkpoint import (
    LOG_SIZE_FILE,
    LOG_START_OFFSET_COPY,
    NEWEST_EPOCH_FILE,
)
from kohort.broker.storage.checkpoints.partition_metadata import (
    FILE_NAME,
    parse_topic_id,
    write_topic_id,
)
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem, read_file
from kohort.broker.storage.layout import is_deleted_directory, parse_partition_directory
from kohort.broker.topics.directories import STRAY_SUFFIX

ReportProgress = Callable[[str, int, int], None]
"""Progress: (activity, number done, total), for display."""

_OTHER_DIRECTORIES: Final = {"remote-log-index-cache"}
_FUTURE_SUFFIX: Final = "-future"


@dataclass(slots=True)
class Plan:
    """A planned conversion."""

    root: Path
    problems: list[str] = field(default_factory=list)
    """Problems, each of which prevents the conversion."""
    left: list[str] = field(default_factory=list)
    """Data that would not be converted."""
    notes: list[str] = field(default_factory=list)
    image: ClusterImage = field(default_factory=ClusterImage)
    meta: MetaProperties = field(default_factory=lambda: MetaProperties("", 0, None))
    without_id: list[tuple[Path, bytes]] = field(default_factory=list)
    """Directories without a topic id, with the id to write into them: Kafka renames directories
    without one."""


def survey(files: FileSystem, plan: Plan, report: ReportProgress) -> None:
    """Examine all directories, and add the results to the plan. Raises OSError."""
    root = plan.root
    if not files.exists(str(root / CLEAN_MARK)):
        plan.problems.append(
            "it was not stopped cleanly: start its broker once more, and stop it with SIGTERM"
        )
    topics = {topic.name: topic for topic in plan.image.topics.values()}
    strays = []
    names = sorted(entry.name for entry in files.entries(str(root)) if entry.is_directory)
    for number, name in enumerate(names):
        report("looking at directories", number, len(names))
        parsed = parse_partition_directory(name)
        if name.startswith(DIRECTORY) or is_deleted_directory(name):
            continue
        if parsed is None:
            if name not in _OTHER_DIRECTORIES and not name.endswith((STRAY_SUFFIX, _FUTURE_SUFFIX)):
                plan.problems.append(
                    f"{root / name} is not a partition: Kafka would not start; move it away"
                )
            continue
        topic = topics.get(parsed[0])
        if topic is None or parsed[1] >= len(topic.partitions):
            strays.append(name)
            continue
        noted = _topic_id(files, root / name)
        if noted is None:
            plan.without_id.append((root / name, topic.topic_id))
        elif noted != topic.topic_id:
            plan.problems.append(
                f"{root / name} belongs to another topic of that name: move it away"
            )
    if strays:
        plan.notes.append(f"directories without a topic, left unchanged: {shown(strays)}")


def note_ids(files: FileSystem, plan: Plan) -> None:
    """Write the topic's id into each directory that lacks it. Raises OSError."""
    assert not plan.problems, "a plan with problems must not be carried out"
    for directory, topic_id in plan.without_id:
        write_topic_id(files, str(directory), topic_id, sync=True)


def remove_own_notes(root: Path, report: ReportProgress) -> None:
    """Remove Kohort's additional files, which can be recreated. Raises OSError."""
    for name in (LOG_SIZE_FILE, NEWEST_EPOCH_FILE, LOG_START_OFFSET_COPY):
        (root / name).unlink(missing_ok=True)
    with os.scandir(root) as entries:
        places = [root, *(Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False))]
    for number, place in enumerate(places):
        report("removing checksums", number, len(places))
        with os.scandir(place) as entries:
            stale = [entry.path for entry in entries if entry.name.endswith(CHECKSUM_SUFFIX)]
        for path in stale:
            Path(path).unlink()


def shown(names: Iterable[str], most: int = 5) -> str:
    """Return a text with the first names, and the number of further names."""
    ordered = sorted(names)
    more = len(ordered) - most
    return ", ".join(ordered[:most]) + (f" and {more} more" if more > 0 else "")


def _topic_id(files: FileSystem, directory: Path) -> bytes | None:
    """Return the id in a directory's partition.metadata; None if it is missing or unreadable.

    The checksum is not verified, because it is stale if Kafka has replaced the file. A damaged id
    counts as another topic's, which prevents the conversion.
    """
    path = f"{directory}/{FILE_NAME}"
    try:
        return parse_topic_id(read_file(files, path), path) if files.exists(path) else None
    except CorruptFileError:
        return None
