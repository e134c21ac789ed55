"""Descriptions of groups and members, the same for all kinds of groups.

DescribeGroups, ListGroups, the pages of the HTTP port, the console, the metrics and the test kit
are all built from these types.
"""

from typing import Final, NamedTuple

from kohort.groups.events import MemberRef
from kohort.groups.kinds import GroupKind


class GroupDescription(NamedTuple):
    """A group without its members: there may be thousands."""

    group_id: str
    kind: GroupKind
    state: str
    """Name of the state in the protocol; each kind of group has its own."""
    protocol_type: str | None = None
    """None if only offsets were committed to the group."""
    generation: int = 0
    """Generation of a classic group; group epoch of any other."""
    assignor: str | None = None
    """Name of the assignor, which a classic group calls its protocol; None if none is chosen."""
    leader_id: str | None = None
    since_ms: int = -1
    """Wall-clock time at which the group entered its state; -1 if unknown."""
    member_count: int = 0
    is_stable: bool = False
    is_rebalancing: bool = False


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[str, ...]
    """Names of the assignors that the member supports, in order of preference."""
    metadata: bytes
    """Metadata for the chosen assignor of a classic group; empty unless Stable."""
    assignment: bytes
    """The assigned partitions, encoded as the member's protocol type defines."""


PARTITIONS_LISTED: Final = 10
"""Maximum number of partitions listed of those that a rebalance waits for."""


class WaitingFor(NamedTuple):
    phase: str
    """The event that the rebalance waits for, as named by GET /groups."""
    since_ms: int
    """Wall-clock time at which the wait began."""
    until_ms: int | None
    """Monotonic time at which the group stops waiting."""
    members: tuple[MemberRef, ...]
    unused_ids: tuple[str, ...] = ()
    """Member ids that were returned to clients, which have not joined with them yet."""
    partition_count: int = 0
    """In phase revoke: number of partitions that `members` have to revoke."""
    partitions: tuple[tuple[str, int], ...] = ()
    """The first `PARTITIONS_LISTED` partitions that `members` have to revoke: topic and number."""
    blocked_count: int = 0
    """In phase revoke: number of members that wait for partitions of other members."""
    heard_ms: tuple[int, ...] = ()
    """When each of `members` sent its last heartbeat (monotonic); empty if unknown."""
    session_ends_ms: tuple[int, ...] = ()
    """When each session of `members` expires unless renewed (monotonic); empty if unknown."""
    is_any: bool = False
    """Whether the group waits for at least one of `members`, but it is unknown for which."""
