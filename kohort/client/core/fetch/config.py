"""How to fetch."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from kohort.client.core.offsets import ResetPolicy


class IsolationLevel(IntEnum):
    """Whether records of transactions that are open or aborted are returned (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchConfig(Protocol):
    """What fetching has to know of a consumer's settings: `ConsumerConfig` has them, and says what
    the others mean and what they are by default.
    """

    @property
    def fetch_min_bytes(self) -> int: ...

    @property
    def fetch_max_wait_ms(self) -> int: ...

    @property
    def fetch_max_bytes(self) -> int:
        """What one answer may have; a first batch that is larger is returned anyway (KIP-74)."""

    @property
    def max_partition_fetch_bytes(self) -> int:
        """The same, of one partition in one answer."""

    @property
    def prefetch_bytes_limit(self) -> int:
        """So much may wait to be taken, compressed as it was sent. As much again may be held for
        batches that are decompressed and partly read, beside the one that is being read.
        """

    @property
    def inflated_bytes_limit(self) -> int:
        """One batch may grow to that; a larger one is a RecordTooLargeError."""

    @property
    def check_crcs(self) -> bool: ...

    @property
    def isolation(self) -> IsolationLevel: ...

    @property
    def reset_policy(self) -> ResetPolicy:
        """Where to begin without a position."""

    @property
    def retry_backoff_ms(self) -> int: ...

    @property
    def retry_backoff_max_ms(self) -> int: ...

    @property
    def request_timeout_ms(self) -> int: ...

    @property
    def client_rack(self) -> str | None:
        """Told to leaders, which may name a follower there to be read from (KIP-392)."""

    @property
    def metadata_max_age_ms(self) -> int:
        """Also how long such a follower is read from before the leader is asked again."""
