"""Names that fields of records can hold. Apart from the records, which a start does not need."""

from enum import StrEnum
from typing import Final

SCHEMA: Final = 1
"""Grows when the meaning of a field changes; new fields do not count."""

REBALANCE: Final = "rebalance"
AVOIDED: Final = "avoided"
"""Kinds of records."""


class RebalanceOutcome(StrEnum):
    """How a rebalance ended, or that it did not."""

    STABLE = "stable"
    EMPTY = "empty"
    SUPERSEDED = "superseded"
    """Another one began before this one had ended; its members took part in that."""
    STORE_FAILED = "store_failed"
    RUNNING = "running"
    UNFINISHED = "unfinished"
    """The broker stopped, or the group was rebuilt, while it ran."""


class MemberFate(StrEnum):
    """What became of a member in a rebalance."""

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
    """Why the leader is another one."""

    FIRST = "first"
    """There was none before."""
    LEFT = "left"
    """The last one is no member any more; its fate tells more."""
    REPLACED = "replaced"
    """It is the same static member under a new id."""
    ABSENT = "absent"
    """The last one is still a member, but had not joined when the join phase ended."""
