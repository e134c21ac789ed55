"""How to fetch."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kohort.client.core.offsets import RESET_LATEST, ResetPolicy


class IsolationLevel(IntEnum):
    """Whether records of transactions that are open or aborted are returned (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchConfig(NamedTuple):
    """Kafka's settings of these names, and two of our own."""

    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 << 20
    """Of one answer; a first batch that is larger is returned all the same (KIP-74)."""
    max_partition_fetch_bytes: int = 1 << 20
    """The same, of one partition in one answer."""
    prefetch_bytes_limit: int = 50 << 20
    """Of all that may wait to be taken, as it was sent: compressed. As much again may be inflated,
    of batches that were begun, beside the one that is being read."""
    inflated_bytes_limit: int = 64 << 20
    """Of one batch when it is decompressed; a larger one is a RecordTooLargeError."""
    check_crcs: bool = True
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    auto_offset_reset: ResetPolicy = RESET_LATEST
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 30_000
    client_rack: str | None = None
    """Told to leaders, which may name a follower there to be read from (KIP-392)."""
    metadata_max_age_ms: int = 300_000
    """Also how long such a follower is read from before the leader is asked again."""
