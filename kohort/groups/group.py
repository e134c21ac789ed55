"""A group of any kind: its id, its committed offsets, its log, and its membership if it has one.

This is the interface for the shell, which does the I/O of a group. Every method is one atomic step;
after one or several steps `take_effects` returns the effects that the shell has to carry out.
Nothing here waits, keeps a clock or uses randomness. The rules of the members' protocol are in the
:mod:`membership <kohort.groups.membership>`, which a group acquires, replaces (`convert`) or loses
while its id, offsets, outbox and unanswered requests (tickets) stay.

How changes become durable:

- *Durable state* (offsets, and the membership's records) is the result of applying the records of
  the log. A change goes from the step to `Outbox.stage`, Append, `on_appended`; then its request is
  answered. A membership documents its exceptions.
- *Volatile state* (parked requests, timers) exists only in memory and is lost with the process, as
  in Kafka.

A failed append is known not to be in the log (storage undoes it or closes the partition for good),
so compensating in memory gives the same result as a replay, plus the volatile state; see each
write's `on_failed`. If a step raises, nothing in memory can be trusted, and the shell discards the
group and replays it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kohort.groups.config import GroupConfig
from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
from kohort.groups.effects import Effect, TimerKey
from kohort.groups.events import CommitFenced, Event, GroupRestored
from kohort.groups.kinds import DEAD, EMPTY, GroupKind
from kohort.groups.membership import Membership
from kohort.groups.offsets import commit as offsets
from kohort.groups.offsets import removal
from kohort.groups.offsets.table import OffsetTable
from kohort.groups.outbox import Answers, Outbox
from kohort.groups.records import (
    DurableRecord,
    Generation,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    PendingOffset,
)
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    EnclosingTransaction,
    Now,
    Ticket,
    TopicPartition,
)
from kohort.protocol.errors import NO_ERROR, ErrorCode
from kohort.protocol.types import ZERO_UUID

UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE

_APPEND_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UNAVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: UNAVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_RECORD: ErrorCode.UNKNOWN_SERVER_ERROR,
}

_CAUSED_BY_RECORDS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
        ErrorCode.INVALID_RECORD,
    }
)
"""Errors of an append that only the write with the offending records should get: without it, an
append of the other writes may succeed."""

_OF_OFFSETS: Final = (OffsetRecord, PendingOffset, OffsetTombstone)


def client_error(error: ErrorCode) -> ErrorCode:
    """Return the error that clients get for a failed append: an error that they can handle."""
    return _APPEND_ERRORS.get(error, error)


NewMembership: TypeAlias = Callable[["Group"], Membership]
"""Creates an empty membership of one kind for a group; does not set `Group.membership`."""

Restorers: TypeAlias = Mapping[type[Any], NewMembership]
"""For each class of record, the constructor of the membership that stores such records."""


class Group:
    """A group of any kind. Requests that are the same for all kinds are methods of this class."""

    __slots__ = (
        "__weakref__",
        "_restorers",
        "config",
        "group_id",
        "is_dead",
        "membership",
        "offsets",
        "outbox",
    )

    def __init__(
        self, group_id: str, config: GroupConfig, restorers: Restorers = MappingProxyType({})
    ) -> None:
        self.group_id = group_id
        self.config = config
        self.offsets = OffsetTable()
        self.outbox = Outbox()
        self.membership: Membership | None = None
        """None until a member joins; until then the group has only offsets."""
        self.is_dead = False
        """Whether the group was removed or is being unloaded."""
        self._restorers = restorers

    # Requests to all kinds of groups.

    def commit(self, request: CommitRequest, ticket: Ticket, now: Now) -> None:
        """Execute an OffsetCommit. Answer: CommitResult."""
        membership = self.membership
        if membership is None:
            error = self._validate_commit(request)
        else:
            error = membership.validate_commit(request, now, transactional=False)
        if error:
            self.outbox.reply(ticket, CommitResult((error,) * len(request.offsets)))
        else:
            offsets.store(self, request, ticket, now)

    def commit_in_transaction(
        self, request: CommitRequest, transaction: EnclosingTransaction, ticket: Ticket, now: Now
    ) -> None:
        """Execute a TxnOffsetCommit. Answer: CommitResult."""
        membership = self.membership
        if membership is None:
            error = self._validate_commit(request)
        else:
            error = membership.validate_commit(request, now, transactional=True)
        if error:
            self.outbox.note(CommitFenced(error))
            self.outbox.reply(ticket, CommitResult((error,) * len(request.offsets)))
        else:
            offsets.store_in_transaction(self, request, transaction, ticket, now)

    def _validate_commit(self, request: CommitRequest) -> ErrorCode:
        """Return NONE or the error for a commit to a group without membership: only a commit
        without a generation is valid.
        """
        if self.is_dead:
            return UNAVAILABLE
        return NO_ERROR if request.generation < 0 else ErrorCode.UNKNOWN_MEMBER_ID

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return whether the sender of an OffsetFetch may read offsets: NONE, or the error."""
        membership = self.membership
        return (
            NO_ERROR if membership is None else membership.validate_fetch(member_id, member_epoch)
        )

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker of the log. An append may be in progress."""
        offsets.end_transaction(self, producer_id, commit=commit)

    # Removal. Each operation needs a step of its own, with no append in progress.

    def delete(self, ticket: Ticket) -> None:
        """Delete the group (DeleteGroups). Answer: ErrorCode."""
        removal.delete_group(self, ticket)

    def delete_offsets(self, partitions: Sequence[TopicPartition], ticket: Ticket) -> None:
        """Execute an OffsetDelete. Answer: DeleteOffsetsResult."""
        removal.delete_offsets(self, partitions, ticket)

    def forget_topics(self, topics: Mapping[str, bytes | None]) -> None:
        """Drop offsets of deleted topics. `topics` has their names, each with the id of the topic
        that has the name now, or None.
        """
        removal.forget_topics(self, topics)

    def forget_lost_topics(self, now: Now) -> None:
        """Drop the state, other than offsets, of topics that do not exist."""
        if self.has_lost_topics:
            assert self.membership is not None
            self.membership.forget_topics(now)

    @property
    def has_lost_topics(self) -> bool:
        """Whether the membership stores state, other than offsets, of topics that do not exist."""
        membership = self.membership
        return membership is not None and not self.is_dead and membership.has_lost_topics

    def expire_offsets(self, now: Now) -> None:
        """Drop expired offsets, and the group if nothing is left; called by the sweep."""
        removal.expire(self, now)

    def tombstones(self) -> tuple[DurableRecord, ...]:
        """Return the records that remove the group, except its offsets, from the log. For a group
        that has only offsets, they are those of a classic group, as in Kafka.
        """
        membership = self.membership
        return (GroupTombstone(self.group_id),) if membership is None else membership.tombstones()

    def end(self, now: Now, error: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND) -> None:
        """Answer parked requests with `error`: the group is removed, or unloaded."""
        if self.is_dead:
            return
        self.is_dead = True
        if self.membership is not None:
            self.membership.end(error, now)

    def close(self) -> None:
        """Release the group's share of the broker's limits, because the group is dropped."""
        if self.membership is not None:
            self.membership.close()

    # Conversion.

    def convert(
        self,
        membership: Membership | None,
        records: Sequence[DurableRecord],
        answers: Answers | None = None,
        events: Sequence[Event] = (),
    ) -> None:
        """Replace the membership; with None, only the offsets remain. In the log the replacement is
        one append, and in memory it takes effect when the append is durable. If the append fails,
        nothing has changed. To be called in a step of its own, with no append in progress.

        Args:
            membership: the new membership, which is started once `records` are durable.
            records: records from which `membership` can be restored.
            answers: the request that caused the conversion, and its possible responses.
            events: reported when `records` are durable.
        """
        assert not self.outbox.is_writing
        self.outbox.stage_alone(ConversionWrite(self, membership, tuple(records), answers, events))

    # Reports from the shell.

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        """Process timers set with Schedule that have expired in one event loop iteration."""
        if self.membership is not None and not self.is_dead:
            self.membership.on_deadlines(keys, now)

    def on_appended(self, now: Now) -> None:
        """Process the success of the last Append."""
        writes, self.outbox.in_flight = self.outbox.in_flight, []
        for write in writes:
            write.on_durable(now)

    def on_append_failed(self, error: ErrorCode, now: Now) -> None:
        """Process the failure of the last Append, whose records will never be in the log."""
        if error in _CAUSED_BY_RECORDS and self.outbox.append_singly():
            return
        for write in self.outbox.finish_append():
            write.on_failed(client_error(error), now)

    def on_append_late(self) -> None:
        """Answer waiting clients although the result of the append is still unknown."""
        for write in self.outbox.unfinished:
            write.answer_early(UNAVAILABLE)

    @property
    def has_effects(self) -> bool:
        return self.outbox.has_effects

    def take_effects(self) -> list[Effect]:
        """Return the effects of the steps since the last call, in order; an Append comes last. Not
        to be called while an append is in progress; see `Outbox.take_ready_effects`.
        """
        return self.outbox.collect()

    # Loading and unloading.

    def restore(
        self, records: Iterable[DurableRecord], now: Now, earlier: Iterable[Generation] = ()
    ) -> None:
        """Restore a newly created group from its log, that is from the last record of each key.
        Records that are not about offsets belong to the membership, and determine its kind. If a
        damaged log has records of several kinds of groups, only those of the last record's kind are
        applied. `earlier` are previous generations, for GroupRestored.
        """
        of_members: list[DurableRecord] = []
        new_membership: NewMembership | None = None
        is_removed = False
        for record in records:
            assert record.group_id == self.group_id
            if isinstance(record, _OF_OFFSETS):
                self.offsets.apply(record)
                continue
            new = self._restorers.get(record.__class__)
            if new is None:
                is_removed = True  # A tombstone.
            else:
                of_members.append(record)
                new_membership = new
        if new_membership is not None:
            of_kind = [r for r in of_members if self._restorers[r.__class__] is new_membership]
            self.membership = new_membership(self)
            self.membership.restore(of_kind, now, earlier)
            self.membership.start(now)
            return
        self.outbox.note(GroupRestored(0, None, None, {}, tuple(earlier)))
        if is_removed:
            self.end(now)

    def unload(self, error: ErrorCode, now: Now) -> None:
        """Hand the group over to its next coordinator: mark it as dead, and answer parked requests
        with `error`.

        Requests whose append is in progress get `error` too, whether or not the append succeeds.
        """
        for write in self.outbox.unfinished:
            write.answer_early(error)
        self.end(now, error)

    # Reads; may be called at any time.

    def committed(
        self, topic: str, partition: int, topic_id: bytes = ZERO_UUID
    ) -> CommittedOffset | None:
        """Return the durable offset of a partition, if it belongs to the topic with this id."""
        found = None if self.is_dead else self.offsets.get(topic, partition)
        return found if found is not None and found.is_of(topic_id) else None

    @property
    def kind(self) -> GroupKind:
        """The kind of the members; a group with only offsets counts as classic (as in Kafka)."""
        membership = self.membership
        return GroupKind.CLASSIC if membership is None else membership.kind

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, and none is joining."""
        membership = self.membership
        return membership is None or membership.is_empty

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members read; None if unknown, to be treated as all topics."""
        membership = self.membership
        return frozenset() if membership is None else membership.subscribed_topics()

    def gauges(self) -> Mapping[str, int]:
        """Return the numbers that the metrics sum over all groups, by name."""
        return {} if self.membership is None else self.membership.gauges()

    def describe(self) -> GroupDescription:
        """Describe the group without its members. With only offsets, it counts as classic."""
        if self.membership is not None:
            return self.membership.describe()
        return GroupDescription(self.group_id, GroupKind.CLASSIC, DEAD if self.is_dead else EMPTY)

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        return () if self.membership is None else self.membership.describe_members(count_max)

    def describe_waiting(self) -> WaitingFor | None:
        """Return what a running rebalance waits for; None if no rebalance is running."""
        return None if self.membership is None else self.membership.describe_waiting()


@dataclass(slots=True, eq=False)
class ConversionWrite:
    """The replacement of a group's membership; see `Group.convert`."""

    group: Group
    membership: Membership | None
    records: tuple[DurableRecord, ...]
    answers: Answers | None
    events: Sequence[Event]

    def make_records(self) -> tuple[DurableRecord, ...]:
        """Return the tombstones of the previous membership, then the records of the new one."""
        previous = self.group.membership
        return self.records if previous is None else (*previous.tombstones(), *self.records)

    def on_durable(self, now: Now) -> None:
        """Replace the membership. Timers of the previous one are cancelled before those of the new
        one are set, because both may have the same keys.
        """
        previous, self.group.membership = self.group.membership, self.membership
        if previous is not None:
            previous.close()
        for event in self.events:
            self.group.outbox.note(event)
        if self.membership is not None:
            self.membership.start(now)
        self._answer(NO_ERROR)

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Close the new membership, keep the previous one, and answer the request with `error`."""
        del now
        if self.membership is not None:
            self.membership.close()
        self._answer(error)

    def answer_early(self, error: ErrorCode) -> None:
        self._answer(error)

    def _answer(self, error: ErrorCode) -> None:
        answers, self.answers = self.answers, None
        if answers is not None:
            answers.give(self.group.outbox, error)
