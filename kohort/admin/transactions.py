"""What can be asked about transactions over Kafka's own protocol, of Kohort and of Kafka.

The coordinator knows transactional ids, a partition knows producer ids (KIP-664). Here they are
brought together, by asking every broker for the ids of a producer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kohort.admin.cluster import Cluster, CoordinatorKind, RefusedError
from kohort.client.net.blocking import BlockingConnection
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from kohort.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kohort.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NONE_OPEN: Final = -1
_END: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_LIST_OFFSETS_MAX: Final = 9
_TRANSACTION_VERSION: Final = 0
"""The epoch of an operator's marker is that of the batches, not the one after it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A transactional id."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: str


@dataclass(frozen=True, slots=True)
class Described:
    """A transactional id with its transaction; times are the broker's wall clock."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """-1: no transaction has begun."""
    partitions: list[tuple[str, int]]
    coordinator: str


@dataclass(frozen=True, slots=True)
class Held:
    """Where consumers of a partition are held at."""

    high_watermark: int
    last_stable_offset: int
    open: list[ProducerState]
    """Producers with an open transaction in the partition, the one that holds first."""
    ids: dict[int, str]
    """Transactional ids of these, as far as a coordinator knows them."""


def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    open_for_ms: int = -1,
    pattern: str | None = None,
) -> list[Listed]:
    """The transactional ids of all brokers that pass every filter, by name.

    Raises:
        RefusedError: also for a state or a pattern that a broker does not understand.
        DisconnectedError: a broker does not answer.
    """
    found: dict[str, Listed] = {}
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=open_for_ms,
        transactional_id_pattern=pattern,
    )
    for broker in cluster.brokers():

        def ask(broker: BlockingConnection = broker) -> ListTransactionsResponse:
            answer: ListTransactionsResponse = cluster.ask(broker, request)
            if answer.error_code:
                what = f"{broker.address} does not list its transactions"
                raise RefusedError(answer.error_code, what)
            return answer

        for one in cluster.retrying(ask).transaction_states:
            found[one.transactional_id] = Listed(
                one.transactional_id, one.transaction_state, one.producer_id, str(broker.address)
            )
    return [found[name] for name in sorted(found)]


def describe_transaction(cluster: Cluster, transactional_id: str) -> Described | None:
    """One transactional id, None if it is not known.

    Raises:
        RefusedError, DisconnectedError: it could not be asked.
    """

    def ask() -> tuple[BlockingConnection, TransactionState]:
        coordinator = cluster.coordinator(transactional_id, CoordinatorKind.TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        state: TransactionState = cluster.ask(coordinator, request).transaction_states[0]
        if state.error_code not in {ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}:
            raise RefusedError(state.error_code, "the transactional id cannot be described")
        return coordinator, state

    coordinator, state = cluster.retrying(ask)
    if state.error_code:
        return None
    return Described(
        transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        sorted((topic.topic, index) for topic in state.topics for index in topic.partitions),
        str(coordinator.address),
    )


def held_back(cluster: Cluster, topic: str, partition: int) -> Held | None:
    """What holds read_committed consumers of a partition back; None if there is no such partition.

    Raises:
        RefusedError, DisconnectedError: it could not be asked.
    """
    leader = cluster.leader(topic, partition)
    if leader is None:
        return None
    producers = _producers(cluster, leader, topic, partition)
    is_open = [one for one in producers if one.current_txn_start_offset != NONE_OPEN]
    is_open.sort(key=lambda one: one.current_txn_start_offset)
    ids = {}
    if is_open:
        listed = list_transactions(cluster, producer_ids=[one.producer_id for one in is_open])
        ids = {one.producer_id: one.transactional_id for one in listed}
    high_watermark = _end(cluster, leader, topic, partition, _READ_UNCOMMITTED)
    stable = _end(cluster, leader, topic, partition, _READ_COMMITTED)
    return Held(high_watermark, stable, is_open, ids)


def abort_in_partition(
    cluster: Cluster, topic: str, partition: int, producer: ProducerState
) -> None:
    """Write an abort marker for a producer's open transaction into one partition.

    Raises:
        RefusedError, DisconnectedError: it was not written.
    """
    leader = cluster.leader(topic, partition)
    assert leader is not None, "it has told its producers"
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
                # Before any marker there was no coordinator in this partition.
                coordinator_epoch=max(producer.coordinator_epoch, 0),
                transaction_version=_TRANSACTION_VERSION,
            )
        ]
    )
    answer: WriteTxnMarkersResponse = cluster.ask(leader, request)
    error = answer.markers[0].topics[0].partitions[0].error_code
    if error:
        raise RefusedError(error, f"{topic}-{partition} does not take the marker")


def _producers(
    cluster: Cluster, leader: BlockingConnection, topic: str, partition: int
) -> list[ProducerState]:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    described = cluster.ask(leader, request).topics[0].partitions[0]
    if described.error_code:
        raise RefusedError(described.error_code, f"{topic}-{partition} does not tell its producers")
    producers: list[ProducerState] = described.active_producers
    return producers


def _end(
    cluster: Cluster, leader: BlockingConnection, topic: str, partition: int, isolation_level: int
) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=_END)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    answer: ListOffsetsResponse = cluster.ask(leader, request, at_most=_LIST_OFFSETS_MAX)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise RefusedError(found.error_code, f"{topic}-{partition} does not tell where it ends")
    return found.offset
