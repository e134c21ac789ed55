"""Errors for topics, partitions and groups that do not exist."""

from collections.abc import Iterable

from kohort.admin.cluster import Cluster
from kohort.cli.errors import NotFoundError


def no_topic(name: str) -> NotFoundError:
    return NotFoundError(f"there is no topic {name!r}; `kohort topics list` lists all topics")


def no_group(group_id: str) -> NotFoundError:
    return NotFoundError(f"there is no group {group_id!r}; `kohort groups list` lists all groups")


def partitions_of(cluster: Cluster, topic: str, wanted: Iterable[int] | None = None) -> list[int]:
    """Sorted indexes of a topic's partitions: the wanted ones, or all.

    Raises:
        NotFoundError: the topic, or one of the partitions, does not exist.
        DisconnectedError
    """
    described = cluster.metadata([topic]).topics[0]
    if described.error_code:
        raise no_topic(topic)
    existing = {partition.partition_index for partition in described.partitions}
    indexes = existing if wanted is None else set(wanted)
    if missing := sorted(indexes - existing):
        raise NotFoundError(f"{topic} has no partition {missing[0]}; it has {len(existing)}")
    return sorted(indexes)
