"""ElectLeaders (key 43): every partition already has the leader that an election would choose.

v0-2 as in Kafka 4.4. There is one broker, so an election is never needed; the response is that of
Kafka where the preferred replicas lead.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.dispatch.access import TEXTS
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, Mirror, OnError, same
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1
TOP_LEVEL_ERROR_SINCE: Final = 1


@handles(
    ElectLeadersRequest,
    versions="0-2",
    on_error=OnError(
        Mirror(
            response="replica_election_results",
            request="topic_partitions",
            copied=same("topic"),
            inner=Mirror(
                response="partition_result", request="partitions", copied={"partition_id": ITSELF}
            ),
        )
    ),
    parts=(lists("topic_partitions.partitions", "replica_election_results.partition_result"),),
)
def elect_leaders(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer each named partition; none if all partitions are meant, since no leader changes."""
    wanted = request.topic_partitions
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return _denied(ctx, wanted or [])
    is_known = request.election_type in {PREFERRED, UNCLEAN}
    response = ElectLeadersResponse(replica_election_results=[])
    if not is_known and wanted != []:
        response.error_code = ErrorCode.INVALID_REQUEST
    if wanted is not None:
        response.replica_election_results = [
            ReplicaElectionResult(
                topic=one.topic,
                partition_result=[
                    _outcome(ctx, one.topic, index)
                    if is_known
                    else _unknown_type(request.election_type, index)
                    for index in one.partitions
                ],
            )
            for one in wanted
        ]
    elif is_known:
        # Topics are listed as Kafka lists them.
        response.replica_election_results = [
            ReplicaElectionResult(topic=topic.name, partition_result=[])
            for topic in ctx.broker.topics.all()
            if topic.is_listed
        ]
    return response


def _outcome(ctx: RequestContext, name: str, index: int) -> PartitionResult:
    topic = ctx.broker.topics.get(name)
    if topic is None:
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    elif not 0 <= index < len(topic.partitions):
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        text = "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=code, error_message=text)


def _denied(ctx: RequestContext, wanted: list[TopicPartitions]) -> ElectLeadersResponse:
    """Refuse at the top level, and once more for each partition."""
    code, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TEXTS[ResourceType.CLUSTER]
    return ElectLeadersResponse(
        error_code=code if ctx.api_version >= TOP_LEVEL_ERROR_SINCE else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=one.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=text)
                    for index in one.partitions
                ],
            )
            for one in wanted
        ],
    )


def _unknown_type(election_type: int, index: int) -> PartitionResult:
    return PartitionResult(
        partition_id=index,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"Unknown election type {election_type}",
    )
