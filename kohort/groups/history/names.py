"""Values of fields of records; separate from the record classes, which start-up does not need."""

from enum import StrEnum
from typing import Final

SCHEMA: Final = 1
"""Increases when the meaning of a field changes; new fields do not count."""

REBALANCE: Final = "rebalance"
AVOIDED: Final = "avoided"
ASSIGNED: Final = "assigned"
"""Kinds of records."""


UNKNOWN_GENERATION: Final = -1
"""In records of a watcher that cannot see the generations of a group."""


class RebalanceOutcome(StrEnum):
    STABLE = "stable"
    EMPTY = "empty"
    SUPERSEDED = "superseded"
    """Another rebalance began before this one had ended, and its members took part in that."""
    STORE_FAILED = "store_failed"
    RUNNING = "running"
    UNFINISHED = "unfinished"
    """The broker stopped, or the group was rebuilt, while it ran."""


class MemberFate(StrEnum):
    KEPT = "kept"
    NEW = "new"
    LEFT = "left"
    REMOVED_BY_ADMIN = "removed_by_admin"
    SESSION_EXPIRED = "session_expired"
    REBALANCE_TIMEOUT = "rebalance_timeout"
    SYNC_EXPIRED = "sync_expired"
    NEW_MEMBER_EXPIRED = "new_member_expired"
    REFUSED = "refused"
    FENCED = "fenced"
    REPLACED = "replaced"


class LeaderChange(StrEnum):
    FIRST = "first"
    """The group had no leader before."""
    LEFT = "left"
    """The previous leader is no longer a member; see its fate."""
    REPLACED = "replaced"
    """The leader is the same static member with a new id."""
    ABSENT = "absent"
    """The previous leader is still a member, but had not joined when the join phase ended."""
