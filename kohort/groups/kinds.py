"""The kinds of groups, each of which has a package of its own beside this file."""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from kohort.groups.records import DurableRecord


class GroupKind(Enum):
    """`value` is the name in ListGroups, where it is called the type."""

    CLASSIC = "classic"
    """Members choose a leader, which assigns: JoinGroup and SyncGroup."""


WITH_OFFSETS_ALONE: Final = GroupKind.CLASSIC
"""The kind of a group that has nothing but offsets, as in Kafka."""


def kind_of(records: Iterable[DurableRecord]) -> GroupKind:
    """Return the kind of the group to which these records of the log belong."""
    del records  # Records of another kind are of other classes.
    return WITH_OFFSETS_ALONE
