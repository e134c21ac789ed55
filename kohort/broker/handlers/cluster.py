"""DescribeCluster (key 60): the cluster id, the controller and the brokers.

v0-2 as in Kafka 4.4. There is one broker, which is never fenced and is also the controller.

DescribeQuorum (key 55): this broker is the only voter of the metadata quorum.

v0-2 as in Kafka 4.4 with one node. The metadata is not stored in a log, so the end offset and the
high watermark are always 0. The voter's address is that of the broker.

UpdateFeatures (key 57): no feature has a level that can be changed.

v0-2. As in Kafka 4.4, a feature may be set to its current level, which changes nothing, and an
unknown feature is rejected. The features of this broker are always enabled, at levels that its
settings fix.
"""

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FeatureUpdateKey,
    Listener,
    Node,
    PartitionAsked,
    PartitionData,
    ReplicaState,
    TopicAsked,
    TopicData,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kohort.protocol.types import ZERO_UUID

METADATA_TOPIC: Final = "__cluster_metadata"
NODES_SINCE: Final = 2
EPOCH: Final = 1
END: Final = 0


@handles(DescribeQuorumRequest, versions="0-2")
def describe_quorum(
    ctx: RequestContext, request: DescribeQuorumRequest
) -> Steps[DescribeQuorumResponse]:
    """Describe the metadata partition if only that is requested; else return errors."""
    ctx.require(Operation.DESCRIBE, ResourceType.CLUSTER)
    partition = PartitionAsked(partition_index=0)
    if request.topics == [TopicAsked(topic_name=METADATA_TOPIC, partitions=[partition])]:
        return DescribeQuorumResponse(
            error_code=ErrorCode.NONE,
            error_message="",
            topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[_metadata(ctx)])],
            nodes=[_node(ctx)] if ctx.api_version >= NODES_SINCE else [],
        )
    response = DescribeQuorumResponse(
        error_code=ErrorCode.NONE, error_message="", topics=[], nodes=[]
    )
    for topic in request.topics:
        described = TopicData(topic_name=topic.topic_name, partitions=[])
        response.topics.append(described)
        yield
        for partition in topic.partitions:
            described.partitions.append(_unknown(partition.partition_index))
            yield
    return response


def _metadata(ctx: RequestContext) -> PartitionData:
    now_ms = ctx.broker.clock.wall_ms()
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=ctx.broker.node_id,
        leader_epoch=EPOCH,
        high_watermark=END,
        current_voters=[
            ReplicaState(
                replica_id=ctx.broker.node_id,
                replica_directory_id=ZERO_UUID,
                log_end_offset=END,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
        observers=[],
    )


def _node(ctx: RequestContext) -> Node:
    host, port = ctx.advertised
    name = ctx.broker.config.listener_endpoints[0].listener
    return Node(node_id=ctx.broker.node_id, listeners=[Listener(name=name, host=host, port=port)])


def _unknown(index: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="This server does not host this topic-partition.",
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


BROKERS: Final = 1
CONTROLLERS: Final = 2


@handles(DescribeClusterRequest, versions="0-2")
def describe_cluster(
    ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
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
    response = DescribeClusterResponse(
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
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ctx.operations(ResourceType.CLUSTER)
    return response


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=message, cluster_id="", brokers=[]
    )


_UPGRADE_TYPES: Final = range(1, 4)
"""Upgrade, safe downgrade and unsafe downgrade: the same here, because no level can change."""


@handles(UpdateFeaturesRequest, versions="0-2")
def update_features(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Accept updates of features to their current level. An update to any other level makes all
    updates fail, as in Kafka.
    """
    ctx.require(Operation.ALTER, ResourceType.CLUSTER)
    for update in request.feature_updates:
        level = ctx.broker.finalized_features.get(update.feature)
        if update.max_version_level != level or update.upgrade_type not in _UPGRADE_TYPES:
            return _refused_update(update)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=update.feature, error_code=ErrorCode.NONE, error_message="NONE"
            )
            for update in request.feature_updates
        ],
    )


def _refused_update(update: FeatureUpdateKey) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=(
            "The update failed for all features since the following feature had an error: Invalid "
            f"update version {update.max_version_level} for feature {update.feature}. This broker "
            "has no feature whose level can be changed."
        ),
    )
