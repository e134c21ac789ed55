"""AlterPartitionReassignments (key 45) and ListPartitionReassignments (key 46).

v0-1 and v0 as in Kafka 4.4. There is one broker: a partition can only be reassigned to this broker,
which changes nothing, so the list is always empty. Other assignments are rejected as Kafka rejects
unknown brokers.

ElectLeaders (key 43): every partition already has the leader that an election would choose.

v0-2 as in Kafka 4.4. There is one broker, so an election is never needed; the response is that of
Kafka if the preferred replicas lead.
"""

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.access import denied
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements, same
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)


@handles(ListPartitionReassignmentsRequest, versions="0")
def list_partition_reassignments(
    ctx: RequestContext, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return an empty list, even if the request names unknown partitions, as Kafka does."""
    ctx.require(Operation.DESCRIBE, ResourceType.CLUSTER)
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=[]
    )


@handles(
    AlterPartitionReassignmentsRequest,
    versions="0-1",
    parts=(lists("topics.partitions", "responses.partitions"),),
)
def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Return a result per partition. A denied request has the error at the top level as well."""
    is_allowed = ctx.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    refusal = None if is_allowed else denied(ResourceType.CLUSTER)
    response = AlterPartitionReassignmentsResponse(
        error_code=refusal.code if refusal else ErrorCode.NONE,
        error_message=refusal.message if refusal else None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(
                        partition.partition_index, refusal or _error(ctx, topic.name, partition)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    if refusal is None:
        if request.topics:
            response.allow_replication_factor_change = request.allow_replication_factor_change
        else:
            # In Kafka the broker itself answers an empty request, with an empty message. The
            # controller, which answers other requests, sends null.
            response.error_message = ""
    return response


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=error.code if error else ErrorCode.NONE,
        error_message=error.message if error else None,
    )


def _error(ctx: RequestContext, name: str, partition: ReassignablePartition) -> KafkaError | None:
    index, replicas, node_id = partition.partition_index, partition.replicas, ctx.broker.node_id
    topic = ctx.broker.topics.get(name)
    if topic is None:
        text = f"Unable to find a topic named {name}."
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if not 0 <= index < len(topic.partitions):
        text = f"Unable to find partition {name}:{index}."
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if replicas is None:
        return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    unknown = next((replica for replica in sorted(replicas) if replica != node_id), None)
    if not replicas:
        problem = "an empty replica list"
    elif unknown is not None:
        problem = f"broker {unknown}, but no such broker is registered"
    elif len(replicas) > 1:
        problem = f"the broker {node_id} more than once"
    else:
        return None
    text = f"The manual partition assignment includes {problem}."
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


PREFERRED: Final = 0
UNCLEAN: Final = 1
TOP_LEVEL_ERROR_SINCE: Final = 1


@handles(
    ElectLeadersRequest,
    versions="0-2",
    on_error=OnError(
        elements(
            "replica_election_results.partition_result",
            "topic_partitions.partitions",
            same("topic"),
            {"partition_id": ITSELF},
        )
    ),
    parts=(lists("topic_partitions.partitions", "replica_election_results.partition_result"),),
)
def elect_leaders(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Return a result for each requested partition. A request for all partitions gets every topic
    with an empty list of partitions, because no leader changes.
    """
    requested = request.topic_partitions
    response = ElectLeadersResponse(replica_election_results=[])
    error: KafkaError | None = None
    """The error of every partition, if the request fails as a whole."""
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        error = denied(ResourceType.CLUSTER)
        if ctx.api_version >= TOP_LEVEL_ERROR_SINCE:
            response.error_code = error.code
    elif request.election_type not in {PREFERRED, UNCLEAN}:
        text = f"Unknown election type {request.election_type}"
        error = KafkaError(ErrorCode.INVALID_REQUEST, text)
        if requested != []:
            response.error_code = ErrorCode.INVALID_REQUEST
    if requested is not None:
        response.replica_election_results = [
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    _election_result(index, error or _outcome(ctx, topic.topic, index))
                    for index in topic.partitions
                ],
            )
            for topic in requested
        ]
    elif error is None:
        # As in Kafka, topics without a change are listed as well.
        response.replica_election_results = [
            ReplicaElectionResult(topic=topic.name, partition_result=[])
            for topic in ctx.broker.topics.all()
            if topic.is_listed
        ]
    return response


def _election_result(index: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)


def _outcome(ctx: RequestContext, name: str, index: int) -> KafkaError:
    topic = ctx.broker.topics.get(name)
    if topic is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        text = f"No such partition as {name}-{index}"
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    text = "Leader election not needed for topic partition."
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, text)
