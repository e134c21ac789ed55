"""The kinds of groups, each of which has a package of its own beside this file."""

from collections.abc import Iterable
from enum import Enum

from kohort.broker.core.group.records import DurableRecord


class GroupKind(Enum):
    """`value` is the name in ListGroups, where it is called the type."""

    CLASSIC = "classic"
    """Members choose a leader, which assigns: JoinGroup and SyncGroup."""


def kind_of(records: Iterable[DurableRecord]) -> GroupKind:
    """Return the kind of the group to which these records of the log belong.

    A group with nothing but offsets is a classic one, as in Kafka.
    """
    del records  # Records of another kind are of other classes.
    return GroupKind.CLASSIC
