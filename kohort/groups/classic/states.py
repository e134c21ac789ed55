"""The states of a classic group, with the answers and the transitions of each.

The answers are for requests of a known member with the current generation; otherwise
UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID is checked first, then ILLEGAL_GENERATION.

The initial rebalance delay has no state of its own: a group that collects its first members shows
as PreparingRebalance with Empty as the previous state.

Empty
    No members; may hold offsets and ids that were handed out but not used yet.

    Join: a new member starts the initial rebalance. Sync, Heartbeat: UNKNOWN_MEMBER_ID.
    OffsetCommit: accepted without membership (generation < 0). DeleteGroups: deletes.

    Ways out: PreparingRebalance when a member joins; Dead when deleted, or when no offset is left.

PreparingRebalance
    Waits for the members to join.

    Join: parks. Sync: REBALANCE_IN_PROGRESS. Heartbeat: REBALANCE_IN_PROGRESS, and the session
    starts again. Leave: removes, which may complete the join phase. OffsetCommit: accepted with
    the generation that is about to end, which lets members commit while they revoke partitions.

    Ways out, when all members have joined or their time is up: CompletingRebalance, or Empty if no
    member is left.

CompletingRebalance
    Joins have been answered; the group waits for the leader's assignment.

    Join with unchanged protocols: the current generation at once; with changed ones, or of
    a new member: a new rebalance. Sync: parks; the leader's completes the phase once the
    assignment is durable. Heartbeat: NONE, not REBALANCE_IN_PROGRESS. Leave: a new rebalance.
    OffsetCommit: REBALANCE_IN_PROGRESS.

    Ways out: Stable with the leader's assignment; PreparingRebalance when members join, leave,
    change or stay silent, or when the assignment could not be stored.

Stable
    The assignment is stored and durable.

    Join: the decision table of :mod:`kohort.groups.classic.decisions`. Sync: the stored
    assignment at once. Heartbeat: NONE. Leave: a new rebalance. OffsetCommit: accepted.

    Ways out: PreparingRebalance.

Dead
    Removed or being unloaded; clients must find the coordinator again.

    Everything: COORDINATOR_NOT_AVAILABLE; OffsetFetch finds nothing, OffsetDelete and DeleteGroups
    find no group. No way out.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from kohort.groups.kinds import DEAD, EMPTY


class ClassicState(Enum):
    """`value` is the name in the protocol."""

    EMPTY = EMPTY
    """No members; may hold offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The group waits for its members to join."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The group waits for the leader's assignment."""
    STABLE = "Stable"
    """Each member has its assignment."""
    DEAD = DEAD
    """Removed or being unloaded."""


LEGAL_PREVIOUS: Final[Mapping[ClassicState, frozenset[ClassicState]]] = MappingProxyType(
    {
        ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
        ClassicState.PREPARING_REBALANCE: frozenset(
            {ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}
        ),
        ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.PREPARING_REBALANCE}),
        ClassicState.STABLE: frozenset({ClassicState.COMPLETING_REBALANCE}),
        ClassicState.DEAD: frozenset(set(ClassicState) - {ClassicState.DEAD}),
    }
)
"""The states from which each state may be entered. New groups begin as Empty, and restored
groups with members as Stable; neither is a transition."""
