"""The kinds of groups, each of which has a package of its own beside this file, and the names of
the states that groups of all kinds have. Each kind documents its further states, transitions and
responses in its own package.
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
    """One member, the leader, assigns: JoinGroup and SyncGroup."""
    CONSUMER = "consumer"
    """The broker assigns: ConsumerGroupHeartbeat (KIP-848)."""
    SHARE = "share"
    """The broker assigns, and members share partitions: ShareGroupHeartbeat (KIP-932)."""
