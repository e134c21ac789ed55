"""The kinds of groups, and the names of the states that all kinds have. Each kind has a package
beside this file, which documents its further states, transitions and responses.
"""

from enum import Enum
from typing import Final

EMPTY: Final = "Empty"
"""No members; may hold offsets."""

DEAD: Final = "Dead"
"""Removed or being unloaded; clients must find the coordinator again."""


class GroupKind(Enum):
    """The kind of a group; ListGroups returns `value` as the group's type."""

    CLASSIC = "classic"
    """The leader, one of the members, assigns the partitions (JoinGroup, SyncGroup)."""
    CONSUMER = "consumer"
    """The broker assigns the partitions (ConsumerGroupHeartbeat, KIP-848)."""
    SHARE = "share"
    """The broker assigns partitions, each to one or more members (ShareGroupHeartbeat, KIP-932)."""
