"""Values in history records, and limits on their client-supplied data. Separate, so that startup
does not import the record classes. The count of a truncated list includes the omitted items.
"""

from collections.abc import Iterable
from enum import StrEnum
from itertools import islice
from typing import Final

SCHEMA: Final = 1
"""Version of the records: increases when a field's meaning changes, not for new fields."""

REBALANCE: Final = "rebalance"
AVOIDED: Final = "avoided"
ASSIGNED: Final = "assigned"
"""Kind of an `AssignedRecord`: a new assignment of a share group."""


UNKNOWN_GENERATION: Final = -1
"""The generation that `kohort watch` records for a group whose generations it cannot read."""


COOPERATIVE: Final = "cooperative"
"""Mode of members that keep reading their remaining partitions during a rebalance."""


class RebalanceOutcome(StrEnum):
    STABLE = "stable"
    EMPTY = "empty"
    SUPERSEDED = "superseded"
    """Another rebalance, in which the members took part, began before this rebalance had ended."""
    STORE_FAILED = "store_failed"
    RUNNING = "running"
    UNFINISHED = "unfinished"
    """The broker stopped, or removed or rebuilt the group, during the rebalance."""


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
    """The previous leader is no longer a member; its `MemberFate` says why."""
    REPLACED = "replaced"
    """The leader is the same static member with a new id."""
    ABSENT = "absent"
    """The previous leader is still a member, but had not joined when the join phase ended."""


MEMBERS_LISTED: Final = 1_000
"""Maximum number of members listed with a timeline; about half a megabyte of JSON."""

CAUSES_LISTED: Final = 100
"""Maximum number of additional causes of one rebalance."""

IDS_LISTED: Final = 100

EXTENSIONS_LISTED: Final = 100

PARTITIONS_LISTED: Final = 50
"""Maximum number of entries in each list of a member's partitions."""

PROTOCOLS_LISTED: Final = 20

ID_CHARS: Final = 300
"""Maximum length of client, member and instance ids and protocol names. Kafka's own ids are
shorter."""

TEXT_CHARS: Final = 255
"""Maximum length of clients' reasons and of other texts; see `cut_text`."""

GONE_KEPT: Final = 10_000
"""Maximum number of departed members recorded for one rebalance."""

STRANGERS_KEPT: Final = 100
"""Once this many departures are recorded, rejected clients without membership are only counted."""

AVOIDED_HELD: Final = 1_000
"""Maximum number of avoided rebalances that wait until the record of an earlier rebalance is
complete."""

ASSIGNMENT_BYTES_MAX: Final = 256 * 1024
"""Larger assignments and subscriptions are not parsed."""

PARTITIONS_COUNTED: Final = 200_000
"""Maximum total of assigned partitions; above it, partition moves are not recorded."""

_ID_HEAD: Final = 240
_ID_TAIL: Final = 40
"""Characters kept at the end of a shortened id, because the ends of member ids are unique."""


def cut_id(text: str) -> str:
    """Return `text`, shortened in the middle if necessary."""
    return text if len(text) <= ID_CHARS else f"{text[:_ID_HEAD]}…{text[-_ID_TAIL:]}"


def cut_text(text: str | None) -> str | None:
    """Return `text`, truncated if necessary; None if empty."""
    if not text:
        return None
    return text if len(text) <= TEXT_CHARS else f"{text[: TEXT_CHARS - 1]}…"


def cut_ids(ids: Iterable[str], count: int = IDS_LISTED) -> tuple[str, ...]:
    """Return the first `count` ids, shortened."""
    return tuple(cut_id(text) for text in islice(ids, count))
