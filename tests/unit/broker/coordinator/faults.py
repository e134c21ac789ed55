"""Faults of a group's actor and of its log, as tests cause them."""

from collections.abc import Awaitable, Sequence

from kohort.broker.coordinator.command import Command
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.encoding import encode_as_batch
from kohort.groups.group import Group
from kohort.groups.records import DurableRecord
from kohort.groups.requests import Now
from kohort.protocol.errors import ErrorCode, KafkaError
from tests.support.memory_logs import MemoryOffsetsLog
from tests.unit.broker.coordinator.harness import Harness


def raising(group: Group, now: Now) -> None:
    raise RuntimeError("a mistake of ours")


def submit_fault(h: Harness) -> Deferred[object]:
    ticket: Deferred[object] = Deferred()
    h.groups.host.submit("g", Command(raising, ticket))
    return ticket


class ShortLog(MemoryOffsetsLog):
    """Refuses batches that are longer."""

    def __init__(self, bytes_max: int = 1 << 20) -> None:
        super().__init__()
        self.bytes_max = bytes_max

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        if len(encode_as_batch(records, wall_ms)[0]) > self.bytes_max:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
        return super().append(partition, records, wall_ms=wall_ms)
