"""The states of groups. Which of them a kind of group has, how it moves and what it answers in each
is said in the package of the kind.
"""

from enum import Enum


class GroupState(Enum):
    """`value` is the name in the protocol."""

    EMPTY = "Empty"
    """No members; may hold offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are collected."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The assignment is awaited."""
    STABLE = "Stable"
    """Each member has its assignment."""
    DEAD = "Dead"
    """Removed or being unloaded; clients that still ask must look for the group again."""
