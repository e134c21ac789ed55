"""The interface of a group to the shell that runs it, whatever its members' protocol.

Every method is one atomic step, except those that return `Steps`; after one or several of them
`take_effects` says what to do. Each kind of group has a package beside this file.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kohort.groups.effects import Effect, TimerKey
from kohort.groups.kinds import GroupKind
from kohort.groups.offsets.owner import OffsetsOwner
from kohort.groups.records import DurableRecord, GroupRecord
from kohort.groups.requests import (
    CommitRequest,
    CommittedOffset,
    EnclosingTransaction,
    GroupDescription,
    Now,
    Ticket,
    TopicPartition,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID


class Group(OffsetsOwner, Protocol):
    """A group of any kind."""

    @property
    def kind(self) -> GroupKind: ...

    # Requests to all kinds of groups.

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Execute a Heartbeat; may be called while an append is in progress."""
        ...

    def commit(self, request: CommitRequest, ticket: Ticket, now: Now) -> None:
        """Execute an OffsetCommit. Answer: CommitResult."""
        ...

    def commit_in_transaction(
        self, request: CommitRequest, transaction: EnclosingTransaction, ticket: Ticket, now: Now
    ) -> None:
        """Execute a TxnOffsetCommit. Answer: CommitResult."""
        ...

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker that is in the log. May be called at any time, also while an
        append is in progress.
        """
        ...

    # Removal. Each operation needs a step of its own, with no append in progress.

    def delete(self, ticket: Ticket) -> None:
        """Delete the group (DeleteGroups). Answer: ErrorCode."""
        ...

    def delete_offsets(self, partitions: Sequence[TopicPartition], ticket: Ticket) -> None:
        """Execute an OffsetDelete. Answer: DeleteOffsetsResult."""
        ...

    def forget_topics(self, topics: Mapping[str, bytes | None]) -> None:
        """Drop offsets of deleted topics; each name with the id of the topic that has it now."""
        ...

    def expire_offsets(self, now: Now) -> None:
        """Drop expired offsets; called by the sweep."""
        ...

    # Reports from the shell.

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        """Handle timers set with Schedule that have expired in one turn."""
        ...

    def on_appended(self, now: Now) -> None:
        """Process the success of the last Append."""
        ...

    def on_append_failed(self, error: ErrorCode, now: Now) -> None:
        """Process the failure of the last Append, whose records will never be in the log."""
        ...

    def on_append_late(self) -> None:
        """Answer waiting clients although the result of the append is still unknown."""
        ...

    @property
    def has_effects(self) -> bool:
        """Whether there are effects to take."""
        ...

    def take_effects(self) -> list[Effect]:
        """Return the effects of the steps since the last call, in order; an Append comes last. Not
        to be called while an append is in progress; see `Outbox.take_ready_effects`.
        """
        ...

    def drop_unused_id(self, member_id: str, now: Now) -> None:
        """Forget a handed-out id, because there are too many in all groups. To be called while no
        append is in progress.
        """
        ...

    def close_accounts(self) -> None:
        """Take the members and the handed-out ids off the broker's accounts: the group is dropped
        with them.
        """
        ...

    # Loading and unloading.

    def restore(
        self, records: Iterable[DurableRecord], now: Now, earlier: Iterable[GroupRecord] = ()
    ) -> None:
        """Restore the group from its log; call it on a fresh group, with the last record of each
        key.
        """
        ...

    def unload(self, error: ErrorCode, now: Now) -> None:
        """Hand the group over to its next coordinator: parked requests are answered `error`."""
        ...

    # Reads; may be called at any time.

    def committed(
        self, topic: str, partition: int, topic_id: bytes = ZERO_UUID
    ) -> CommittedOffset | None:
        """Return the durable offset of a partition, if it belongs to the topic with this id."""
        ...

    def describe(self) -> GroupDescription: ...

    @property
    def member_count(self) -> int: ...

    @property
    def unused_id_count(self) -> int:
        """Ids that were handed out and not used to join yet."""
        ...

    @property
    def parked_join_count(self) -> int:
        """JoinGroup requests that wait for their response."""
        ...

    @property
    def parked_sync_count(self) -> int:
        """SyncGroup requests that wait for their response."""
        ...

    @property
    def size(self) -> int:
        """Number of members and offsets, which determines the cost of work on the whole group."""
        ...
