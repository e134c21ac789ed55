"""Lists and describes transactions, and aborts them in a partition (KIP-664).

Coordinators know transactional ids, partitions know producer ids. To combine them, all brokers are
asked for the transactional ids of a producer id.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kohort.admin.cluster import Cluster, CoordinatorKind, check
from kohort.admin.offsets import END, checked_offsets
from kohort.client.net.blocking import BlockingConnection
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.transactions import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NONE_OPEN: Final = -1
_TRANSACTION_VERSION: Final = 0
"""The marker's epoch is that of the transaction's batches; in version 2 it is one higher."""


@dataclass(frozen=True, slots=True)
class Listed:
    transactional_id: str
    state: str
    producer_id: int
    coordinator: str


@dataclass(frozen=True, slots=True)
class Described:
    """A transactional id with its transaction; times are of the broker's wall clock."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """Start of the transaction; -1 without one."""
    partitions: list[tuple[str, int]]
    coordinator: str


@dataclass(frozen=True, slots=True)
class Held:
    """The open transactions that hold back read_committed consumers of a partition."""

    high_watermark: int
    last_stable_offset: int
    open: list[ProducerState]
    """Producers with an open transaction, in order of the first offset of the transaction."""
    ids: dict[int, str]
    """Transactional ids by the producer ids in `open`; without those that no coordinator knows."""


def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    open_for_ms: int = -1,
    pattern: str | None = None,
) -> list[Listed]:
    """All brokers' transactional ids that match all filters, sorted by id.

    Raises:
        RefusedError: also for an unknown state or an invalid pattern.
    """
    by_id: dict[str, Listed] = {}
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=open_for_ms,
        transactional_id_pattern=pattern,
    )
    for broker in cluster.brokers():

        def ask(broker: BlockingConnection = broker) -> ListTransactionsResponse:
            answer: ListTransactionsResponse = cluster.ask(broker, request)
            check(answer.error_code, f"{broker.address} does not list its transactions")
            return answer

        for state in cluster.retrying(ask).transaction_states:
            by_id[state.transactional_id] = Listed(
                state.transactional_id,
                state.transaction_state,
                state.producer_id,
                str(broker.address),
            )
    return [by_id[name] for name in sorted(by_id)]


def describe_transaction(cluster: Cluster, transactional_id: str) -> Described | None:
    def ask(coordinator: BlockingConnection) -> tuple[BlockingConnection, DescribedTransaction]:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        state: DescribedTransaction = cluster.ask(coordinator, request).transaction_states[0]
        if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            check(state.error_code, "the transactional id cannot be described")
        return coordinator, state

    coordinator, state = cluster.at_coordinator(transactional_id, ask, CoordinatorKind.TRANSACTION)
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
    """Return a partition's open transactions and end offsets; None if it does not exist."""
    leader = cluster.leader(topic, partition)
    if leader is None:
        return None
    producers = _producers(cluster, leader, topic, partition)
    is_open = [state for state in producers if state.current_txn_start_offset != NONE_OPEN]
    is_open.sort(key=lambda state: state.current_txn_start_offset)
    ids = {}
    if is_open:
        listed = list_transactions(cluster, producer_ids=[state.producer_id for state in is_open])
        ids = {entry.producer_id: entry.transactional_id for entry in listed}
    ends = {(topic, partition): END}
    high_watermarks = checked_offsets(cluster, ends)
    stable_offsets = checked_offsets(cluster, ends, committed_only=True)
    if not high_watermarks or not stable_offsets:
        return None  # The topic was deleted meanwhile.
    key = topic, partition
    return Held(high_watermarks[key], stable_offsets[key], is_open, ids)


def abort_in_partition(
    cluster: Cluster, topic: str, partition: int, producer: ProducerState
) -> None:
    """Write an abort marker for a producer's open transaction into one partition."""
    leader = cluster.leader(topic, partition)
    assert leader is not None, "described before"
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
                # The known epoch is -1 before the first marker in the partition.
                coordinator_epoch=max(producer.coordinator_epoch, 0),
                transaction_version=_TRANSACTION_VERSION,
            )
        ]
    )
    answer: WriteTxnMarkersResponse = cluster.ask(leader, request)
    error = answer.markers[0].topics[0].partitions[0].error_code
    check(error, f"{topic}-{partition} rejects the marker")


def _producers(
    cluster: Cluster, leader: BlockingConnection, topic: str, partition: int
) -> list[ProducerState]:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    described = cluster.ask(leader, request).topics[0].partitions[0]
    check(described.error_code, f"the producers of {topic}-{partition} cannot be described")
    producers: list[ProducerState] = described.active_producers
    return producers
