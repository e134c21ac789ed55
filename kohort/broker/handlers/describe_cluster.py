"""DescribeCluster (key 60): the cluster id, the controller and the brokers.

v0-2 as in Kafka 4.4. There is one broker, which is never fenced and is also the controller.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.authorized_operations import NOT_COMPUTED, cluster_operations
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


@handles(DescribeClusterRequest, versions="0-2")
def describe_cluster(
    ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe this broker as the cluster."""
    if request.endpoint_type == CONTROLLERS:
        return _refused(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type"
            " CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
    broker = ctx.broker
    host, port = ctx.advertised
    with_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=host,
                port=port,
                rack=broker.config.broker_rack,
            )
        ],
        cluster_authorized_operations=cluster_operations(ctx) if with_operations else NOT_COMPUTED,
    )


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=message, cluster_id="", brokers=[]
    )
