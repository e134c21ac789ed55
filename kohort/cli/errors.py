"""Errors of commands, by exit code, and those for unknown topics, partitions and groups.

::

    CommandError
    |-- NotFoundError       exit code 1
    |-- UsageError          exit code 2, as argparse's own
    |-- UnavailableError    exit code 3
    |   `-- StartingError
    |-- RefusedCommandError exit code 4
    `-- ExistsError         exit code 5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kohort.admin.cluster import Cluster


class CommandError(Exception):
    """The text is for the user: what is wrong, and what to do about it."""

    exit_code: ClassVar[int]


class NotFoundError(CommandError):
    """The topic, group or other thing does not exist."""

    exit_code = 1


class UsageError(CommandError):
    exit_code = 2


class UnavailableError(CommandError):
    """No broker answers, it is still starting, or its answer cannot be used."""

    exit_code = 3


class StartingError(UnavailableError):
    """The broker is still verifying its logs; the text has the progress."""


class RefusedCommandError(CommandError):
    """A broker rejects the request or the credentials; the text has its reason."""

    exit_code = 4


class ExistsError(CommandError):
    exit_code = 5


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
