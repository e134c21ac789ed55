"""ElectLeaders (key 43): every partition already has the leader that an election would choose.

v0-2 as in Kafka 4.4. There is one broker, so an election is never needed; the response is that of
Kafka if the preferred replicas lead.
"""

from typing import Final, TypeAlias

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.dispatch.access import TEXTS
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, ErrorTemplate, OnError, same
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1
TOP_LEVEL_ERROR_SINCE: Final = 1

_Outcome: TypeAlias = tuple[ErrorCode, str]


@handles(
    ElectLeadersRequest,
    versions="0-2",
    on_error=OnError(
        ErrorTemplate(
            response="replica_election_results",
            request="topic_partitions",
            copied=same("topic"),
            inner=ErrorTemplate(
                response="partition_result", request="partitions", copied={"partition_id": ITSELF}
            ),
        )
    ),
    parts=(lists("topic_partitions.partitions", "replica_election_results.partition_result"),),
)
def elect_leaders(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer each named partition; a request for all gets none, since no leader changes."""
    requested = request.topic_partitions
    response = ElectLeadersResponse(replica_election_results=[])
    error: _Outcome | None = None
    """The error of every partition, if the request fails as a whole."""
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TEXTS[ResourceType.CLUSTER]
        if ctx.api_version >= TOP_LEVEL_ERROR_SINCE:
            response.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif request.election_type not in {PREFERRED, UNCLEAN}:
        error = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        if requested != []:
            response.error_code = ErrorCode.INVALID_REQUEST
    if requested is not None:
        response.replica_election_results = [
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    _result(index, error or _outcome(ctx, topic.topic, index))
                    for index in topic.partitions
                ],
            )
            for topic in requested
        ]
    elif error is None:
        # Topics are listed as Kafka lists them.
        response.replica_election_results = [
            ReplicaElectionResult(topic=topic.name, partition_result=[])
            for topic in ctx.broker.topics.all()
            if topic.is_listed
        ]
    return response


def _result(index: int, outcome: _Outcome) -> PartitionResult:
    code, text = outcome
    return PartitionResult(partition_id=index, error_code=code, error_message=text)


def _outcome(ctx: RequestContext, name: str, index: int) -> _Outcome:
    topic = ctx.broker.topics.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
