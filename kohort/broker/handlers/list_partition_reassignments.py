"""ListPartitionReassignments (key 46): no partition is being moved.

v0 as in Kafka 4.4. There is one broker, and a move to it is over when it is asked for.
"""

from __future__ import annotations

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ListPartitionReassignmentsRequest, versions="0")
def list_partition_reassignments(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Nothing; Kafka passes over topics and partitions that there are not."""
    if ctx.broker.access is not None:
        ctx.require(Operation.DESCRIBE, ResourceType.CLUSTER)
    del request
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=[]
    )
