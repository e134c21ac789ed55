"""What membership in a group asks its consumer to do next, one step at a time."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from kohort.client.core.group.assignors.assignor import Assignor, GroupMember
from kohort.client.core.group.identity import Identity
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.messages.join_group import JoinGroupRequest
from kohort.protocol.messages.sync_group import SyncGroupRequest


class Idle(NamedTuple):
    """Nothing to do until then; None: until something happens."""

    until_ms: int | None = None


class FindCoordinator(NamedTuple):
    """Then call `coordinator_found`, or `coordinator_failed`."""


class RefreshTopics(NamedTuple):
    """Fetch the list of topics, so that the pattern is matched with what is there now; then call
    `topics_refreshed`.
    """


class Prepare(NamedTuple):
    """Get ready for a rebalance: commit, then call the listener; then call `prepared`.

    While that goes on the member still lives, and heartbeats are sent.
    """

    revoked: frozenset[TopicPartition] | None
    """For on_revoked, which is not called at all if None."""
    lost: frozenset[TopicPartition]
    """For on_lost, if there are any: others may have them by now, so nothing may be
    committed."""
    kept: frozenset[TopicPartition]
    """What is owned afterwards, and read from all the while."""


class Join(NamedTuple):
    """Send it; then call `join_answered`, or `join_failed`."""

    identity: Identity
    request: JoinGroupRequest


class Assign(NamedTuple):
    """Lead: run the assignor with the partition counts of these topics; then call `assigned`."""

    assignor: Assignor | None
    """The assignor to run; None: the coordinator keeps the assignment (KIP-814), so that only the
    counts are needed."""
    members: Sequence[GroupMember]
    topics: frozenset[str]


class Sync(NamedTuple):
    """Send it; then call `sync_answered`, or `sync_failed`."""

    identity: Identity
    request: SyncGroupRequest


class Apply(NamedTuple):
    """Take over the new share: call on_revoked, own `assigned`, call on_assigned; then call
    `applied`.
    """

    revoked: frozenset[TopicPartition]
    """For on_revoked, if there are any; they are still owned while it runs."""
    assigned: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    """For on_assigned, even if there are none."""


Step: TypeAlias = Idle | FindCoordinator | RefreshTopics | Prepare | Join | Assign | Sync | Apply
