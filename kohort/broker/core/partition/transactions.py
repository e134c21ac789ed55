"""The transactions of one partition: which are open, and below which offset all is decided.

A transaction is open in a partition from its first batch to the marker that ends it. Consumers with
isolation.level=read_committed read up to the last stable offset: no batch below it belongs to a
transaction that is open, or whose marker could still be lost because the high watermark has not
passed it (KIP-98).

Pure. Offsets of open transactions only rise as they begin, live and when a log is read again, so
the first of them is found without a search.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple


class OpenTransaction(NamedTuple):
    """A transaction of a producer that no marker has ended in this partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_ms: int
    """Wall time of the producer's last batch here."""


class AbortedTransaction(NamedTuple):
    """What the index of aborted transactions says of one."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The abort marker's."""
    last_stable_offset: int
    """What was stable when the marker came: later entries have no first offset below it."""


class TransactionSpans:
    """The offsets that transactions hold consumers back with."""

    __slots__ = ("ended", "open")

    def __init__(self) -> None:
        self.open: OrderedDict[int, int] = OrderedDict()
        """First offset -> producer id of every open transaction, ascending."""
        self.ended: deque[tuple[int, int]] = deque()
        """(first offset, offset of the marker) of ended ones that are not settled, by marker."""

    def begin(self, first_offset: int, producer_id: int) -> None:
        """A transaction has its first batch here, behind all that have begun before."""
        self.open[first_offset] = producer_id

    def end(self, first_offset: int, marker_offset: int) -> int:
        """A marker has ended one. Returns what is stable then, were the marker settled."""
        del self.open[first_offset]
        self.ended.append((first_offset, marker_offset))
        return next(iter(self.open), marker_offset + 1)

    def settle(self, high_watermark: int) -> None:
        """Forget the ended ones whose marker lies below the high watermark."""
        ended = self.ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """What the module says, once all is settled that can be; never below the log's start.

        Kafka's can lie below it, where records of an open transaction were deleted.
        """
        first_open = next(iter(self.open), high_watermark)
        held = (first_offset for first_offset, _ in self.ended)
        return max(min(high_watermark, first_open, *held), log_start_offset)

    def clear(self) -> None:
        """Forget everything, as before a log is read again."""
        self.open.clear()
        self.ended.clear()


UNCOUNTED_BYTES: Final = 1 << 30
"""In the place of the bytes behind a last stable offset that an earlier process left behind."""


class StableOffset:
    """The last stable offset of a partition, and how much is visible behind it; both kept.

    Deleted records are left out of account here: see `TransactionSpans.last_stable_offset`.
    """

    __slots__ = ("offset", "spans", "unstable_bytes")

    def __init__(self, spans: TransactionSpans, high_watermark: int) -> None:
        self.spans = spans
        self.offset = spans.last_stable_offset(high_watermark, 0)
        self.unstable_bytes = UNCOUNTED_BYTES if self.offset < high_watermark else 0
        """Visible bytes behind it: an estimate where transactions overlap. As long as it is 0 and
        there are no spans, the offset simply follows the high watermark."""

    def follow(self, high_watermark: int, new_bytes: int) -> None:
        """The high watermark has risen by so many bytes."""
        self.spans.settle(high_watermark)
        before = self.offset
        offset = self.offset = self.spans.last_stable_offset(high_watermark, 0)
        self.unstable_bytes += new_bytes
        if offset == high_watermark:
            self.unstable_bytes = 0
        elif offset > before:
            # Requests that wait for bytes read again, and it does no harm if that is a little
            # early.
            share = (high_watermark - offset) / (high_watermark - before)
            self.unstable_bytes = int(self.unstable_bytes * share)
