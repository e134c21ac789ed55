"""Access to requested topics, leaders of partitions, and the check of their epochs (KIP-320).
Contains no handlers.
"""

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError

NO_LEADER: Final = -1
"""The id of the leader of a partition that has none."""


def check_leader_epoch(clients_epoch: int, leader_epoch: int) -> ErrorCode:
    """Return the error for a request with this ``current_leader_epoch``; -1 skips the check.

    Args:
        leader_epoch: that of the partition.
    """
    if clients_epoch in {-1, leader_epoch}:
        return NO_ERROR
    if clients_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def current_partition(ctx: RequestContext, topic: str, index: int, clients_epoch: int) -> Partition:
    """Return the requested partition, if the client knows its leader epoch.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or the error of `check_leader_epoch`.
    """
    partition = ctx.broker.topics.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if error := check_leader_epoch(clients_epoch, partition.leader_epoch):
        raise KafkaError(error)
    return partition


def may_use(
    ctx: RequestContext, operation: Operation, topic: Topic | None, name: str, *, by_id: bool
) -> bool:
    """Return whether the principal may use a topic; `topic` is None if it does not exist.

    An unknown id is allowed: it has no name that could be denied, and is answered UNKNOWN_TOPIC_ID.
    """
    if topic is not None:
        return ctx.may(operation, ResourceType.TOPIC, topic.name)
    return by_id or ctx.may(operation, ResourceType.TOPIC, name)
