"""What commands say about topics, partitions and groups that do not exist."""

from collections.abc import Iterable

from kohort.admin.cluster import Cluster
from kohort.cli.errors import NotFoundError


def no_topic(name: str) -> NotFoundError:
    """The error for a topic that does not exist."""
    return NotFoundError(f"there is no topic {name!r}; `kohort topics list` shows which there are")


def no_group(group_id: str) -> NotFoundError:
    """The error for a group that does not exist."""
    return NotFoundError(
        f"there is no group {group_id!r}; `kohort groups list` shows which there are"
    )


def partitions_of(cluster: Cluster, topic: str, wanted: Iterable[int] | None = None) -> list[int]:
    """The indexes of a topic's partitions, sorted: those wanted, or all.

    Raises:
        NotFoundError: the topic, or one of the partitions, does not exist.
        DisconnectedError
    """
    described = cluster.metadata([topic]).topics[0]
    if described.error_code:
        raise no_topic(topic)
    there = {one.partition_index for one in described.partitions}
    found = there if wanted is None else set(wanted)
    if missing := sorted(found - there):
        raise NotFoundError(f"{topic} has no partition {missing[0]}; it has {len(there)}")
    return sorted(found)
