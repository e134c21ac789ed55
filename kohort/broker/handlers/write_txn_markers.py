"""WriteTxnMarkers (key 27): write transaction markers to partitions, for any producer.

v1-2. Coordinator and partitions are on one broker here, so this is used only by operators with a
hanging transaction (`Admin.abortTransaction`). v2 has a transaction version (KIP-1228): if it is 2
or more, the marker's epoch is one above that of the batches. For a negative epoch or transaction
version, INVALID_REQUEST is returned; Kafka returns UNKNOWN_SERVER_ERROR. On __consumer_offsets the
marker also commits or discards the producer's pending offsets.
"""

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.slices import Slice
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kohort.protocol.records.control import ControlType


@handles(
    WriteTxnMarkersRequest,
    versions="1-2",
    on_error=OnError(
        elements(
            "markers.topics.partitions",
            "markers.topics.partition_indexes",
            same("producer_id"),
            same("name"),
            {"partition_index": ITSELF},
        )
    ),
)
async def write_txn_markers(
    ctx: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write the markers; answered when all are durable. The response has one result per producer
    and partition: that of the last marker, if the request has several.
    """
    if not ctx.sees(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        ctx.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    markers = ctx.broker.transactions.markers
    time_slice = Slice(ctx.broker.clock)
    results: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                topics = results.setdefault(marker.producer_id, {})
                errors = topics.setdefault(topic.name, {})
                errors[index] = await _write(markers, marker, topic.name, index)
                await time_slice.pause()
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=error
                            )
                            for index, error in errors.items()
                        ],
                    )
                    for name, errors in topics.items()
                ],
            )
            for producer_id, topics in results.items()
        ]
    )


async def _write(
    markers: PartitionMarkers, marker: WritableTxnMarker, topic: str, index: int
) -> ErrorCode:
    if marker.producer_epoch < 0 or marker.transaction_version < 0:
        return ErrorCode.INVALID_REQUEST
    written = markers.write(
        topic,
        index,
        marker.producer_id,
        marker.producer_epoch,
        ControlType.COMMIT if marker.transaction_result else ControlType.ABORT,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    return written if isinstance(written, ErrorCode) else await written
