"""Names in the data directory, as Kafka gives them.

<data directory>/
    .lock                               locked by the broker; has its process id (lock.py)
    .kafka_cleanshutdown                the last stop was clean (clean_shutdown.py)
    recovery-point-offset-checkpoint    offsets below which logs are flushed (offset_checkpoint.py)
    log-start-offset-checkpoint         log start offsets above 0; and a .copy of it
    log-size-checkpoint                 bytes of all logs at the last clean stop
    newest-leader-epoch-checkpoint      leader epochs at the last clean stop, if above the first
    <topic>-<partition>/
        partition.metadata              the topic's id (partition_metadata.py)
        leader-epoch-checkpoint         (leader_epochs.py)
        <20 digits>.log                 batches from that offset on (segment.py)
        <20 digits>.index .timeindex    sparse, can be rebuilt (indexes.py)
        <20 digits>.txnindex            aborted transactions, if any (transaction_index.py)
        <20 digits>.snapshot            producer state below that offset (producer_snapshot.py)
        segments.crc                    checksums of .txnindex, .snapshot and first batches
                                        (segment_checksums.py)
        *.deleted                       to be removed
        *.cleaned *.swap                replacements made by compaction (cleaner.py)
    <topic>-<partition>.<hex>-delete/   a deleted partition, to be removed
"""

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"
DELETED_DIRECTORY_SUFFIX = "-delete"

KAFKA_FILE = "meta.properties"
"""Kafka's file that identifies a data directory. A directory with it belongs to Kafka, and is not
opened."""

_OFFSET_DIGITS = 20
_NAME_BYTES_MAX = 255


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}"


def offset_in(name: str, suffix: str) -> int | None:
    """Return the offset in a file name with exactly this suffix; None for any other name."""
    parts = split_file_name(name)
    return parts[0] if parts is not None and parts[1] == suffix else None


def split_file_name(name: str) -> tuple[int, str] | None:
    """Return the offset at the beginning of a file name and the rest; None for any other name."""
    digits = name[:_OFFSET_DIGITS]
    if len(digits) < _OFFSET_DIGITS or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits), name[_OFFSET_DIGITS:]


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def deleted_directory(topic: str, partition: int, unique_hex: str) -> str:
    """Return the name that a partition's directory gets when the topic is deleted, so that a topic
    of the same name can be created at once. A name too long for the file system is truncated.
    """
    tail = f"-{partition}.{unique_hex}{DELETED_DIRECTORY_SUFFIX}"
    return topic[: _NAME_BYTES_MAX - len(tail)] + tail


def is_deleted_directory(name: str) -> bool:
    """Whether a directory of this name belongs to a deleted partition and is to be removed."""
    return name.endswith(DELETED_DIRECTORY_SUFFIX) and "." in name


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a partition's directory; None for any other name."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not partition.isascii() or not partition.isdigit():
        return None
    return topic, int(partition)
