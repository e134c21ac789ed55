"""Settings for fetching."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from kohort.client.core.offsets import ResetPolicy


class IsolationLevel(IntEnum):
    """Whether records of open or aborted transactions are returned (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchConfig(Protocol):
    """The settings that fetching needs; `ConsumerConfig` implements and documents them."""

    @property
    def fetch_min_bytes(self) -> int: ...

    @property
    def fetch_max_wait_ms(self) -> int: ...

    @property
    def fetch_max_bytes(self) -> int:
        """Limit for one response. If the first batch is larger, it is returned anyway (KIP-74)."""

    @property
    def max_partition_fetch_bytes(self) -> int:
        """Limit for one partition in a response. If its first batch is larger, it is returned
        anyway.
        """

    @property
    def prefetch_bytes_limit(self) -> int:
        """Limit for received bytes that polls have not returned yet. Partly read batches may use
        as many bytes again once decompressed, not counting the batch that is being read.
        """

    @property
    def inflated_bytes_limit(self) -> int:
        """Limit for a decompressed batch; a larger batch raises RecordTooLargeError."""

    @property
    def check_crcs(self) -> bool: ...

    @property
    def isolation(self) -> IsolationLevel: ...

    @property
    def reset_policy(self) -> ResetPolicy:
        """Where to start in a partition that has no position (auto.offset.reset)."""

    @property
    def retry_backoff_ms(self) -> int: ...

    @property
    def retry_backoff_max_ms(self) -> int: ...

    @property
    def request_timeout_ms(self) -> int: ...

    @property
    def client_rack(self) -> str | None:
        """The rack sent to leaders, which may return a preferred read replica in it (KIP-392)."""

    @property
    def metadata_max_age_ms(self) -> int:
        """How long a preferred read replica is used before the leader is asked again."""
