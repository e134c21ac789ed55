"""A cache of reads at the ends of partitions."""

from collections import OrderedDict
from collections.abc import Hashable

TAIL_CACHE_BYTES = 8 * 1024 * 1024
ENTRY_BYTES_MAX = 1024 * 1024
"""Maximum size of a cached read. Larger reads come from consumers that are catching up, and are
hardly ever shared.
"""
ENTRY_OVERHEAD_BYTES = 300
"""Memory of an entry besides the result."""


class TailCache:
    """A least-recently-used map of read results, so that many consumers at the end of one partition
    share one read. Bounded by the memory of all entries.

    An append wakes every fetch that waits at the end of its partition, and all of them read the
    same bytes within one event loop iteration. The key contains everything that determines the
    result, so an entry is never stale, only unused.
    """

    def __init__(self, bytes_max: int = TAIL_CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[Hashable, bytes | memoryview] = OrderedDict()
        self._held_bytes = 0

    def get(self, key: Hashable) -> bytes | memoryview | None:
        """Return the result stored under ``key``, or None."""
        data = self._entries.get(key)
        if data is not None:
            self._entries.move_to_end(key)
        return data

    def put(self, key: Hashable, data: bytes | memoryview) -> None:
        """Store ``data`` under ``key`` unless it is empty or too large."""
        if not 0 < len(data) <= ENTRY_BYTES_MAX or key in self._entries:
            return
        self._entries[key] = data
        self._held_bytes += len(data) + ENTRY_OVERHEAD_BYTES
        while self._held_bytes > self._bytes_max:
            _, dropped = self._entries.popitem(last=False)
            self._held_bytes -= len(dropped) + ENTRY_OVERHEAD_BYTES
