"""The in-memory log of groups."""

from collections.abc import Awaitable, Iterator, Sequence

from kohort.broker.coordinator.log.offsets_log import (
    Stored,
    StoredRecord,
    decode_stored,
    encode_stored,
)
from kohort.groups.encoding import encode_as_batch
from kohort.groups.records import DurableRecord
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.control import ControlType, EndTransactionMarker, encode_marker
from kohort.testing.memory_log import MemoryLog


class MemoryOffsetsLog(MemoryLog):
    """An :class:`~kohort.broker.coordinator.log.offsets_log.OffsetsLog` that keeps its batches in
    memory.
    """

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append a batch; durable at once unless held."""
        return self.append_batch(partition, encode_as_batch(records, wall_ms)[0])

    def append_stored(
        self, partition: int, records: Sequence[StoredRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        del wall_ms
        return self.append_batch(partition, encode_stored(records)[0])

    def append_marker(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """Append the marker that ends a producer's transaction."""
        marker = EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, 0)
        batch = encode_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=-1)
        self.append_batch(partition, batch)

    async def force(self, partition: int) -> None:
        """Do nothing: batches in memory are durable."""

    def read(self, partition: int) -> Iterator[Stored]:
        for batch in self.batches[partition]:
            yield from decode_stored(read_header(batch), batch)
