"""The kinds of groups, each of which has a package of its own beside this file."""

from enum import Enum


class GroupKind(Enum):
    """`value` is the name in ListGroups, where it is called the type."""

    CLASSIC = "classic"
    """Members choose a leader, which assigns: JoinGroup and SyncGroup."""
    CONSUMER = "consumer"
    """The broker assigns: ConsumerGroupHeartbeat (KIP-848)."""
