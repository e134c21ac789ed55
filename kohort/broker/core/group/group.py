"""What a group is to the shell that runs it, whatever protocol its members speak.

Every method is one atomic step, but for what returns `Steps`; after one or several of them
`take_effects` tells what to do. The kinds of groups lie in rooms of their own beside this file.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kohort.broker.core.group.effects import Effect, TimerKey
from kohort.broker.core.group.offsets.owner import OffsetsOwner
from kohort.broker.core.group.records import DurableRecord, GroupRecord
from kohort.broker.core.group.requests import (
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
    """One group of any kind."""

    # Requests that every kind is sent.

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Answered on the spot; may be called while an append is under way."""
        ...

    def commit(self, request: CommitRequest, ticket: Ticket, now: Now) -> None:
        """OffsetCommit. Answer: CommitResult."""
        ...

    def commit_in_transaction(
        self, request: CommitRequest, transaction: EnclosingTransaction, ticket: Ticket, now: Now
    ) -> None:
        """TxnOffsetCommit. Answer: CommitResult."""
        ...

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The marker of the producer's transaction is in the log. May be called at any time, also
        while an append is under way.
        """
        ...

    # Removal. Each wants a step of its own, with nothing on its way to the log.

    def delete(self, ticket: Ticket) -> None:
        """DeleteGroups. Answer: ErrorCode."""
        ...

    def delete_offsets(self, partitions: Sequence[TopicPartition], ticket: Ticket) -> None:
        """OffsetDelete. Answer: DeleteOffsetsResult."""
        ...

    def forget_topics(self, topics: Mapping[str, bytes | None]) -> None:
        """Topics were deleted; each with the id of the topic that has its name now."""
        ...

    def expire_offsets(self, now: Now) -> None:
        """The sweep."""
        ...

    # What the shell reports.

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        """Deadlines that were asked for with Schedule have come, all in one turn."""
        ...

    def on_appended(self, now: Now) -> None:
        """The records of the last Append are durable."""
        ...

    def on_append_failed(self, error: ErrorCode, now: Now) -> None:
        """They are not, and never will be: `error` says why."""
        ...

    def on_append_late(self) -> None:
        """The outcome is still open, but clients have waited for it long enough."""
        ...

    @property
    def has_effects(self) -> bool:
        """Is there something to take?"""
        ...

    def take_effects(self) -> list[Effect]:
        """What the steps since the last call ask for, in order; an Append comes last. Not to be
        called while an append is under way; see `Outbox.take_ready_effects`.
        """
        ...

    # Beginning and end.

    def restore(
        self, records: Iterable[DurableRecord], now: Now, earlier: Iterable[GroupRecord] = ()
    ) -> None:
        """Become what the log says; call it on a fresh group, with the last record of each key."""
        ...

    def unload(self, error: ErrorCode, now: Now) -> None:
        """Leave the group to its next coordinator: parked requests are told `error`."""
        ...

    # Reads; may be called at any time.

    def committed(
        self, topic: str, partition: int, topic_id: bytes = ZERO_UUID
    ) -> CommittedOffset | None:
        """The durable position of a partition, if it is one of the topic with this id."""
        ...

    def describe(self) -> GroupDescription: ...

    @property
    def member_count(self) -> int: ...

    @property
    def unused_id_count(self) -> int:
        """Ids that were handed out and that no member has joined with."""
        ...

    @property
    def parked_join_count(self) -> int:
        """JoinGroup requests that wait for their answer."""
        ...

    @property
    def parked_sync_count(self) -> int:
        """SyncGroup requests that wait for their answer."""
        ...

    @property
    def size(self) -> int:
        """Members and positions: what work on the whole group grows with."""
        ...
