"""WriteTxnMarkers (key 27): append the markers that end transactions in partitions (KIP-98).

Sent by coordinators to the partitions' leaders, and by operators' tools to end a hanging
transaction. v1 flexible; v2 transaction version of the marker (KIP-1228). Version 0 ended with
Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int8, Int16, Int32, Int64, String


@struct
class WritableTxnMarkerTopic:
    name: String
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    """True commits, False aborts."""
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field(default=0, since=2, ignorable=True)
    """2 if the epoch is the one after that of the batches (KIP-890), 0 or 1 if it is the same."""


@request(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult:
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@response(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """One outcome per producer and partition.

    Error codes, per partition:
    - INVALID_REQUEST: an epoch or a transaction version below 0.
    - INVALID_PRODUCER_EPOCH: the partition knows a later epoch of the producer.
    - TRANSACTION_COORDINATOR_FENCED: it knows a later epoch of the coordinator.
    """

    markers: list[WritableTxnMarkerResult]
