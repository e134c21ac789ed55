"""DescribeLogDirs (key 35): the data directory and the size of each partition in it.

v1-5 as in Kafka 4.4. There is one directory, it is never cordoned, and nothing is moved between
directories, so there is no lag and there are no future logs.

AlterReplicaLogDirs (key 34): accepted for the only data directory, without effect.

v1-2 as in Kafka 4.4.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements
from kohort.broker.dispatch.registry import handles
from kohort.broker.topics.topic import Topic
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@handles(
    AlterReplicaLogDirsRequest,
    versions="1-2",
    on_error=OnError(
        elements(
            "results.partitions",
            "dirs.topics.partitions",
            {"topic_name": "name"},
            {"partition_index": ITSELF},
        )
    ),
)
def alter_replica_log_dirs(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> Steps[AlterReplicaLogDirsResponse]:
    """Return a result per partition, for the last directory that the request names for it."""
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


@handles(
    DescribeLogDirsRequest,
    versions="1-5",
    on_error=OnError(elements("results", ITSELF, {})),
)
def describe_log_dirs(
    ctx: RequestContext, request: DescribeLogDirsRequest
) -> Steps[DescribeLogDirsResponse]:
    """Describe the requested partitions; partitions that do not exist are omitted, as in Kafka."""
    if not ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[]
        )
    directory = ctx.broker.topics.directory
    total_bytes, usable_bytes = _volume(directory)
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=str(directory),
        topics=(yield from _topics(ctx, request)),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[result])


def _topics(
    ctx: RequestContext, request: DescribeLogDirsRequest
) -> Steps[list[DescribeLogDirsTopic]]:
    topics = ctx.broker.topics
    wanted: list[tuple[Topic, Iterable[int]]] = []
    if request.topics is None:
        wanted = [(topic, range(len(topic.partitions))) for topic in topics.all()]
    else:
        indexes: dict[str, dict[int, None]] = {}
        for requested in request.topics:
            indexes.setdefault(requested.topic, {}).update(dict.fromkeys(requested.partitions))
            yield
        wanted = [
            (topic, indexes[name]) for name in indexes if (topic := topics.get(name)) is not None
        ]
    results = []
    for topic, listed in wanted:
        described = yield from _describe(topic, listed)
        if described.partitions:
            results.append(described)
    return results


def _describe(topic: Topic, indexes: Iterable[int]) -> Steps[DescribeLogDirsTopic]:
    described = DescribeLogDirsTopic(name=topic.name, partitions=[])
    for index in indexes:
        # Partitions of internal topics have no directory before their first use.
        if 0 <= index < len(topic.partitions) and not (
            topic.is_internal and topic.partitions.peek(index) is None
        ):
            described.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=topic.partitions[index].log.size_bytes,
                    offset_lag=0,
                    is_future_key=False,
                )
            )
        yield
    return described


def _volume(directory: Path) -> tuple[int, int]:
    """Return the total and the usable bytes of the disk; -1 if the system does not report them."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return -1, -1
    return usage.total, usage.free
