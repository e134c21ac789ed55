"""Replaces a partition's log that cannot be opened."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, cast

from kohort.broker.config import TopicConfig
from kohort.broker.storage.log.log import PartitionLog


@dataclass(slots=True, eq=False)
class OfflineLog:
    """Has the attributes of a log that are used while its partition is offline."""

    directory: Path
    config: TopicConfig
    log_start_offset: int = 0
    log_end_offset: int = 0
    flushed_offset: int = 0
    size_bytes: int = 0
    lost_offsets: int = 0
    newest_epoch: int = -1
    segments: tuple[object, ...] = ()
    failed: bool = True
    attempts: int = 1
    """How often opening the log has failed."""
    retry_at_ms: int = 0
    """Monotonic time from which on it may be retried."""
    is_retrying: bool = False


def offline_log(directory: Path, config: TopicConfig, *, retry_at_ms: int) -> PartitionLog:
    """Create the replacement; its partition must be taken offline at once."""
    return cast("PartitionLog", OfflineLog(directory, config, retry_at_ms=retry_at_ms))


def is_offline_log(log: object) -> TypeGuard[OfflineLog]:
    """Whether a partition has only the replacement."""
    return isinstance(log, OfflineLog)
