"""What a partition has in place of its log when that cannot be opened."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from broker.config import TopicConfig
from broker.storage.log import PartitionLog
from protocol.lazy_dataclass import dataclass


@dataclass(slots=True)
class _OfflineLog:
    """Answers what is asked of a log without using it; a partition that is offline asks no more."""

    directory: Path
    config: TopicConfig
    log_start_offset: int = 0
    log_end_offset: int = 0
    flushed_offset: int = 0
    size_bytes: int = 0
    segments: tuple[object, ...] = ()
    failed: bool = True


def offline_log(directory: Path, config: TopicConfig) -> PartitionLog:
    """The stand-in; its partition must be taken offline at once."""
    return cast("PartitionLog", _OfflineLog(directory, config))


def is_offline_log(log: object) -> bool:
    """Whether a partition has only the stand-in."""
    return isinstance(log, _OfflineLog)
