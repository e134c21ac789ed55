"""Assignors, with which the leader of a group decides which member reads which partition.

Range, round robin, sticky and cooperative sticky behave as Java's classes of the same names in
everything visible from outside (rule, user data, names), so that a member of either client may lead
a mixed group.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kohort.client.core.group.assignors.assignor import Assignor, GroupMember, RebalanceProtocol
from kohort.client.core.group.assignors.simple import RangeAssignor, RoundRobinAssignor
from kohort.client.core.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

ASSIGNORS: Final[Mapping[str, type[Assignor]]] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (
            RangeAssignor,
            RoundRobinAssignor,
            StickyAssignor,
            CooperativeStickyAssignor,
        )
    }
)
"""The built-in assignors, by their name in `partition_assignment_strategy`."""

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
]
