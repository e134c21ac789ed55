"""Checkpoint files with one offset per partition, as Kafka keeps them in the data directory.

The text format: version 0, the number of entries, then `<topic> <partition> <offset>` per line.
"""

from collections.abc import Mapping

from kohort.broker.storage.checked_file import read_checked, replace_checked
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
"""Recovery points: lower offsets are on disk, and are not verified after an unclean shutdown."""
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
"""Log start offsets above 0; Kafka omits those that the first segment's name implies."""
LOG_START_OFFSET_COPY = "log-start-offset-checkpoint.copy"
"""A copy of LOG_START_OFFSET_FILE: no other file contains the effect of DeleteRecords."""
LOG_SIZE_FILE = "log-size-checkpoint"
"""Total size of all .log files at a clean shutdown. Kafka has no such file."""
NEWEST_EPOCH_FILE = "newest-leader-epoch-checkpoint"
"""Newest leader epochs above 0, as of the last clean shutdown. Kafka has no such file."""
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
"""The offset up to which a log is compacted."""

VERSION = "0"


def write_offsets(
    files: FileSystem, directory: str, name: str, offsets: Mapping[tuple[str, int], int]
) -> None:
    """Replace a checkpoint by these offsets per (topic, partition). Raises OSError.

    A power failure may restore the previous checkpoint, but never leaves a mixture.
    """
    lines = [VERSION, str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    replace_checked(files, f"{directory}/{name}", ("\n".join(lines) + "\n").encode())


def read_offsets(files: FileSystem, directory: str, name: str) -> dict[tuple[str, int], int]:
    """Return the offset per (topic, partition); {} if there is no such file. Raises OSError.

    Raises CorruptFileError if the file is damaged: recovery points are then 0, which costs a scan
    of the logs, and log start offsets are read from LOG_START_OFFSET_COPY.
    """
    path = f"{directory}/{name}"
    content = read_checked(files, path)
    return {} if not content else parse_offsets(content, path)


def parse_offsets(content: bytes, path: str) -> dict[tuple[str, int], int]:
    """Parse a checkpoint; `path` is used in the message of the CorruptFileError."""
    try:
        version, count, *lines = content.decode("ascii").splitlines()
        offsets = dict(map(_parse_line, lines))
        if version != VERSION or int(count) != len(lines) or len(offsets) != len(lines):
            raise CorruptFileError(f"{path}: version {version}, {len(lines)} of {count} entries")
    except ValueError as error:
        raise CorruptFileError(f"{path}: {error}") from None
    return offsets


def _parse_line(line: str) -> tuple[tuple[str, int], int]:
    topic, partition, offset = line.split()
    if int(partition) < 0 or int(offset) < 0:
        raise ValueError(f"negative number in {line!r}")
    return (topic, int(partition)), int(offset)
