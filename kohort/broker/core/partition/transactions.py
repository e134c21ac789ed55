"""The transactions of one partition: which are open, and the last stable offset.

A transaction is open in a partition from its first batch to the marker that ends it. Consumers with
isolation.level=read_committed read up to the last stable offset: no batch below it belongs to a
transaction that is open, or whose marker could still be lost because the high watermark has not
passed it (KIP-98).

No I/O. Transactions are added in order of first offset, live and on replay, so the lowest first
offset of an open one needs no search.
"""

from collections import OrderedDict, deque
from typing import Final, NamedTuple


class OpenTransaction(NamedTuple):
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_ms: int
    """Wall-clock time of the producer's last batch in the partition."""


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset after the marker; transactions that end later begin at or after it."""


class TransactionSpans:
    """The offset ranges of transactions that keep the last stable offset from advancing."""

    __slots__ = ("ended", "open")

    def __init__(self) -> None:
        self.open: OrderedDict[int, int] = OrderedDict()
        """First offset -> producer id of every open transaction, ascending."""
        self.ended: deque[tuple[int, int]] = deque()
        """(first offset, marker offset) of ended transactions whose marker the high watermark has
        not passed, in the order of markers.
        """

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Record the first batch of a transaction. Must be called in the order of first offsets."""
        self.open[first_offset] = producer_id

    def end(self, first_offset: int, marker_offset: int) -> int:
        """Record a marker. Returns the last stable offset that will result when the high watermark
        passes the marker.
        """
        del self.open[first_offset]
        self.ended.append((first_offset, marker_offset))
        return next(iter(self.open), marker_offset + 1)

    def settle(self, high_watermark: int) -> None:
        """Drop ended transactions whose marker is below the high watermark."""
        ended = self.ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """Return the last stable offset, never below the log start. Call `settle` before.

        In Kafka it can be below the log start, if records of an open transaction were deleted.
        """
        first_open = next(iter(self.open), high_watermark)
        held = (first_offset for first_offset, _ in self.ended)
        return max(min(high_watermark, first_open, *held), log_start_offset)

    def clear(self) -> None:
        self.open.clear()
        self.ended.clear()


UNCOUNTED_BYTES: Final = 1 << 30
"""Assumed size of the data after the last stable offset, if an earlier process wrote it."""


class StableOffset:
    """The last stable offset of a partition, and the visible bytes after it; both kept up to date.

    The log start is ignored here, so `offset` may be below it after records were deleted.
    """

    __slots__ = ("offset", "spans", "unstable_bytes")

    def __init__(self, spans: TransactionSpans, high_watermark: int) -> None:
        self.spans = spans
        self.offset = spans.last_stable_offset(high_watermark, 0)
        self.unstable_bytes = UNCOUNTED_BYTES if self.offset < high_watermark else 0
        """Bytes between `offset` and the high watermark: an estimate if transactions overlap. While
        it is 0 and `spans` is empty, `offset` simply follows the high watermark."""

    def follow(self, high_watermark: int, new_bytes: int) -> None:
        self.spans.settle(high_watermark)
        before = self.offset
        offset = self.offset = self.spans.last_stable_offset(high_watermark, 0)
        self.unstable_bytes += new_bytes
        if offset == high_watermark:
            self.unstable_bytes = 0
        elif offset > before:
            # An estimate. If it is too low, a Fetch that waits for stable bytes is tried too early,
            # and waits again.
            share = (high_watermark - offset) / (high_watermark - before)
            self.unstable_bytes = int(self.unstable_bytes * share)
