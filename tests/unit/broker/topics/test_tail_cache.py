"""The cache of reads at the ends of partitions."""

import tracemalloc

from kohort.broker.topics.tail_cache import TailCache

BYTES_MAX = 1_000_000


def test_small_results_take_no_more_memory_than_the_bound() -> None:
    cache = TailCache(BYTES_MAX)
    reads = object()
    tracemalloc.start()
    try:
        for offset in range(1_000_000, 1_020_000):
            cache.put((reads, 0, offset, 1 << 20, offset + 1, True), bytes(10))
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes < 1.3 * BYTES_MAX
    assert cache.get((reads, 0, 1_019_999, 1 << 20, 1_020_000, True)) == bytes(10)
    assert cache.get((reads, 0, 1_000_000, 1 << 20, 1_000_001, True)) is None
