"""The actions that a membership asks its consumer to perform, one at a time."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from kohort.client.core.group.assignors.assignor import Assignor, GroupMember
from kohort.client.core.group.identity import Identity
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.messages.membership import JoinGroupRequest, SyncGroupRequest


class Idle(NamedTuple):
    """No action until this time; None: until an event."""

    until_ms: int | None = None


class FindCoordinator(NamedTuple):
    """Find the coordinator; then call `coordinator_found` or `coordinator_failed`."""


class RefreshTopics(NamedTuple):
    """Fetch the list of topics to match the pattern; then call `topics_refreshed`."""


class Prepare(NamedTuple):
    """Prepare for a rebalance: commit, notify the listener, then call `prepared`.

    Meanwhile the consumer is still a member, and heartbeats are sent.
    """

    revoked: frozenset[TopicPartition] | None
    """The partitions for on_revoked, which is not called at all if None."""
    lost: frozenset[TopicPartition]
    """The partitions for on_lost, if any: other members may own them by now, so nothing may be
    committed."""
    kept: frozenset[TopicPartition]
    """The partitions that remain owned; reading them continues during the rebalance."""


class Join(NamedTuple):
    """Send this JoinGroup; then call `join_answered` or `join_failed`."""

    identity: Identity
    request: JoinGroupRequest


class Assign(NamedTuple):
    """Run the assignor as leader, with these partition counts; then call `assigned`."""

    assignor: Assignor | None
    """The assignor to run; None: the coordinator keeps the present assignment (KIP-814), and only
    the partition counts are needed."""
    members: Sequence[GroupMember]
    topics: frozenset[str]


class Sync(NamedTuple):
    """Send this SyncGroup; then call `sync_answered` or `sync_failed`."""

    identity: Identity
    request: SyncGroupRequest


class Apply(NamedTuple):
    """Take over the new assignment and call the listener; then call `applied`."""

    revoked: frozenset[TopicPartition]
    """The partitions for on_revoked, if any; they are still owned while it runs."""
    assigned: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    """The partitions for on_assigned, which is called even if there are none."""


MemberAction: TypeAlias = (
    Idle | FindCoordinator | RefreshTopics | Prepare | Join | Assign | Sync | Apply
)
