"""The progress of the broker's startup, for probes, pages, metrics and the log.

After an unclean shutdown, verifying the logs takes from seconds to an hour.
"""

import math
import threading
from collections.abc import Mapping
from typing import Any, Final

from kohort.broker.runtime.slices import Monotonic
from kohort.formats.text import counted, duration

PARTITION_BYTES: Final = 1 << 20
"""The cost of the fsyncs for each partition, expressed in bytes that could be read meanwhile."""

ESTIMATE_AFTER_MS: Final = 1_000
"""The remaining time is not estimated until verification has taken this long."""


class StartupProgress:
    """Counts partitions and bytes on the threads that verify logs; read by the event loop."""

    def __init__(self, clock: Monotonic) -> None:
        self._clock = clock
        self.phase = "opening the data directory"
        """What the broker is doing; empty after the start."""
        self.partitions_total = 0
        self.partitions_verified = 0
        self.bytes_total = 0
        self.bytes_verified = 0
        """Bytes verified so far; a finished partition counts in full, even if part was skipped."""
        self._lock = threading.Lock()
        self._unverified: dict[tuple[str, int], int] = {}
        """Bytes not verified yet, by topic and partition number."""
        self._began_ms = 0

    def begin_verifying(self, sizes: Mapping[tuple[str, int], int]) -> None:
        """Start counting; `sizes` has the bytes to verify by topic and partition number."""
        self.phase = "verifying logs"
        self._unverified = dict(sizes)
        self.partitions_total = len(sizes)
        self.bytes_total = sum(sizes.values())
        self._began_ms = self._clock.monotonic_ms()

    def verified(self, partition: tuple[str, int], size_bytes: int) -> None:
        """Count verified bytes of a partition; ignored for partitions opened after the start."""
        with self._lock:
            left = self._unverified.get(partition, 0)
            self._unverified[partition] = left - min(size_bytes, left)
            self.bytes_verified += min(size_bytes, left)

    def finish(self, partition: tuple[str, int]) -> None:
        """Count a partition as verified, with all of its bytes that are not counted yet."""
        with self._lock:
            self.bytes_verified += self._unverified.pop(partition, 0)
            self.partitions_verified += 1

    def seconds_left(self) -> int | None:
        """Estimate the time until all logs are verified; None if it is unknown."""
        total = self.bytes_total + self.partitions_total * PARTITION_BYTES
        done = self.bytes_verified + self.partitions_verified * PARTITION_BYTES
        elapsed_ms = self._clock.monotonic_ms() - self._began_ms
        if not done or (elapsed_ms < ESTIMATE_AFTER_MS and done < total):
            return None
        return math.ceil(elapsed_ms * (total - done) / done / 1_000)

    def text(self) -> str:
        """Return the progress in words."""
        if self.partitions_verified == self.partitions_total:
            return self.phase
        text = (
            f"{self.phase} after an unclean shutdown,"
            f" {self.partitions_verified} of {counted(self.partitions_total, 'partition')},"
            f" {self.bytes_verified / 1e6:,.0f} of {self.bytes_total / 1e6:,.0f} MB"
        )
        left = self.seconds_left()
        return text if left is None else f"{text}, about {duration(left * 1_000)} left"

    def fields(self) -> dict[str, Any]:
        """Return the progress for JSON."""
        return {
            "phase": self.phase,
            "partitions_verified": self.partitions_verified,
            "partitions_total": self.partitions_total,
            "bytes_verified": self.bytes_verified,
            "bytes_total": self.bytes_total,
            "seconds_left": self.seconds_left(),
        }
