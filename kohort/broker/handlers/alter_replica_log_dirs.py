"""AlterReplicaLogDirs (key 34): accepted for the only data directory, without effect.

v1-2 as in Kafka 4.4.
"""

from __future__ import annotations

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, ErrorTemplate, OnError
from kohort.broker.dispatch.registry import handles
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@handles(
    AlterReplicaLogDirsRequest,
    versions="1-2",
    on_error=OnError(
        ErrorTemplate(
            response="results",
            request="dirs.topics",
            copied={"topic_name": "name"},
            inner=ErrorTemplate(
                response="partitions", request="partitions", copied={"partition_index": ITSELF}
            ),
        )
    ),
)
def alter_replica_log_dirs(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> Steps[AlterReplicaLogDirsResponse]:
    """Answer each partition, for the last directory that the request names for it."""
    ctx.require(Operation.ALTER, ResourceType.CLUSTER)
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted.setdefault(topic.name, {})[index] = directory.path
                yield
    response = AlterReplicaLogDirsResponse(results=[])
    for name, paths in wanted.items():
        result = AlterReplicaLogDirTopicResult(topic_name=name, partitions=[])
        response.results.append(result)
        for index, path in paths.items():
            result.partitions.append(
                AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=_outcome(ctx, name, index, path)
                )
            )
            yield
    return response


def _outcome(ctx: RequestContext, name: str, index: int, path: str) -> ErrorCode:
    if path != str(ctx.broker.topics.directory):
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = ctx.broker.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
