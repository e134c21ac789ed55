"""Topics and records of a test's broker, written and read without a client.

Produced records pass through the code of Produce requests, starting at the frame; reads return the
records that a consumer would get.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

from kohort.admin.producing import partition_of
from kohort.broker.app import Broker
from kohort.broker.dispatch.dispatcher import Dispatcher
from kohort.broker.dispatch.registry import Router
from kohort.broker.handlers import load_handlers
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.topics.creation import USE_DEFAULT
from kohort.broker.topics.partition import Partition
from kohort.client.core.fetch.batches import Aborted, Fetched, ReadOptions
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import RawRecord
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.framing import decode_response_at, encode_request
from kohort.protocol.limits import INFLATED_BYTES_LIMIT
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.kit.polling import LONG_S, wait_until

CLIENT_ID: Final = "kohort-testing"
PRODUCE_VERSION: Final = 12
"""The last Produce version that names topics; later ones use ids."""
READ_BYTES: Final = 1 << 20

Content: TypeAlias = bytes | str | None
Headers: TypeAlias = Mapping[str, Content] | Sequence[tuple[str, Content]]


class RecordParts(TypedDict, total=False):
    """The keyword arguments of `Kafka.produce`, which documents them."""

    key: Content
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


class WantedRecords(TypedDict, total=False):
    """The keyword arguments of `Kafka.records`, which documents them."""

    partition: int | None
    count: int | None
    timeout: float
    committed: bool


class Produced(NamedTuple):
    topic: str
    partition: int
    offset: int


class Topics:
    def __init__(self, broker: Broker, logger: Any) -> None:  # noqa: ANN401 - a logger.
        self._broker = broker
        log = PeerLog(logger, broker.services.clock)
        # A separate router, so that faults do not apply to the test's own requests; and no access
        # control, so that the test is authorized for everything.
        services = replace(broker.services, access=None)
        self._dispatcher = Dispatcher(Router(load_handlers()), services, broker.metrics.edge, log)
        self._connection = ConnectionInfo(peer_host="/127.0.0.1")
        self._numbers = itertools.count(1)
        self._next_partition = itertools.count()

    async def create(
        self, name: str, partitions: int | None = None, configs: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic, by default with num.partitions partitions. Raises KafkaError."""
        count = USE_DEFAULT if partitions is None else partitions
        changes = self._broker.services.topics.changes
        await changes.create_topic(name, partition_count=count, configs=texts_of(configs or {}))

    async def ask(self, request: object, version: int) -> Any:  # noqa: ANN401 - any response.
        """Return the response to a request, without a socket. Raises KafkaError."""
        parts, expected = encode_request(request, version, next(self._numbers), CLIENT_ID)
        frame = b"".join(parts)[4:]
        answer = self._dispatcher.serve(self._connection, frame)
        buffers = await answer if isinstance(answer, Deferred) else answer
        assert buffers is not None
        response, _ = decode_response_at(b"".join(buffers), 4, expected)
        return response

    async def produce(
        self,
        topic: str,
        value: Content,
        *,
        key: Content = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Produced:
        """Append one record. Raises KafkaError."""
        if not self._has(topic):
            await self.create(topic)
        index = self._choose(topic, _bytes(key)) if partition is None else partition
        now_ms = self._broker.services.clock.wall_ms()
        record = Record(
            _bytes(value),
            _bytes(key),
            _headers(headers),
            now_ms if timestamp_ms is None else timestamp_ms,
        )
        data = PartitionProduceData(index=index, records=memoryview(encode_batch([record])))
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = await self.ask(request, PRODUCE_VERSION)
        written = answer.responses[0].partition_responses[0]
        if written.error_code:
            raise KafkaError(ErrorCode(written.error_code), written.error_message)
        return Produced(topic, index, written.base_offset)

    def _choose(self, name: str, key: bytes | None) -> int:
        topic = self._broker.services.topics.get(name)
        assert topic is not None
        count = len(topic.partitions)
        return next(self._next_partition) % count if key is None else partition_of(key, count)

    def read(
        self, name: str, partition: int | None = None, *, committed: bool = False
    ) -> list[RawRecord]:
        """Return all records, by partition and offset. KafkaError: no such topic or partition."""
        topic = self._broker.services.topics.get(name)
        if topic is None or (partition is not None and partition >= len(topic.partitions)):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} {partition or ''}")
        indexes = range(len(topic.partitions)) if partition is None else (partition,)
        records: list[RawRecord] = []
        for index in indexes:
            records += _read_all(topic.partitions[index], committed=committed)
        return records

    async def wait_records(
        self,
        name: str,
        partition: int | None = None,
        *,
        count: int | None = None,
        timeout: float = LONG_S,  # noqa: ASYNC109 - its TimeoutError describes the state.
        committed: bool = False,
    ) -> list[RawRecord]:
        """Return the result of `read` once there are `count` records. Raises TimeoutError."""
        if count is None:
            return self.read(name, partition, committed=committed)
        records: list[RawRecord] = []

        def are_there() -> bool:
            # A missing topic counts as empty: its first record may create it.
            records[:] = self.read(name, partition, committed=committed) if self._has(name) else []
            return len(records) >= count

        if not await wait_until(are_there, timeout):
            raise TimeoutError(f"{len(records)} of {count} records in {name} within {timeout:g} s")
        return records

    def _has(self, name: str) -> bool:
        return self._broker.services.topics.get(name) is not None


def _read_all(partition: Partition, *, committed: bool) -> list[RawRecord]:
    where = TopicPartition(partition.topic_name, partition.index)
    options = ReadOptions(check_crcs=True, inflated_bytes_limit=INFLATED_BYTES_LIMIT)
    offset = partition.log.log_start_offset
    records: list[RawRecord] = []
    while True:
        data = partition.reads.read(offset, READ_BYTES, min_one=True, committed_only=committed)
        if not data:
            return records
        aborted = partition.reads.aborted_in_read(offset, len(data)) if committed else ()
        fetched = Fetched(
            where,
            memoryview(data),
            options,
            [Aborted(transaction.first_offset, transaction.producer_id) for transaction in aborted],
            offset=offset,
        )
        while batch := fetched.read(offset, 1 << 30):
            records += batch
        offset = fetched.next_offset


def _bytes(content: Content) -> bytes | None:
    if isinstance(content, str):
        return content.encode()
    if content is not None and not isinstance(content, (bytes, bytearray, memoryview)):
        raise TypeError(f"keys and values are bytes, text or None, not {type(content).__name__}")
    return content


def _headers(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, _bytes(value)) for name, value in pairs)


def texts_of(configs: Mapping[str, object]) -> dict[str, str]:
    """Convert configs to Kafka's text form."""
    return {name: _text(value) for name, value in configs.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
