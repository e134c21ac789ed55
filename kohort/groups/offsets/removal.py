"""Removal from the log: deleted groups, deleted and expired offsets.

Each removal is staged in a step of its own, when no append is in progress, and takes effect once
its tombstones are durable. So it cannot race with a commit or a join.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from kohort.groups.events import GroupRemoved, OffsetsRemoved
from kohort.groups.kinds import GroupKind
from kohort.groups.membership import OffsetRetention
from kohort.groups.offsets.table import OffsetsOwner
from kohort.groups.outbox import Answers
from kohort.groups.records import DurableRecord, OffsetTombstone
from kohort.groups.requests import (
    CONSUMER,
    CommittedOffset,
    DeleteOffsetsResult,
    Now,
    Ticket,
    TopicPartition,
)
from kohort.protocol.errors import ErrorCode


def delete_group(owner: OffsetsOwner, ticket: Ticket) -> None:
    """Delete the group and its offsets (DeleteGroups). Answered with an ErrorCode."""
    assert not owner.outbox.is_writing
    if owner.is_dead:
        owner.outbox.reply(ticket, ErrorCode.GROUP_ID_NOT_FOUND)
    elif not owner.is_empty:
        owner.outbox.reply(ticket, ErrorCode.NON_EMPTY_GROUP)
    else:
        found = chain(owner.offsets.items(), owner.offsets.pending_items())
        partitions = list(dict.fromkeys(partition for partition, _ in found))
        answers = Answers(ticket, ErrorCode.NONE, lambda error: error)
        _stage(owner, partitions, answers, with_group=True)


def delete_offsets(
    owner: OffsetsOwner, partitions: Sequence[TopicPartition], ticket: Ticket
) -> None:
    """Execute an OffsetDelete of existing partitions; one without a commit is no error."""
    assert not owner.outbox.is_writing
    membership = owner.membership
    if owner.is_dead or (membership is not None and membership.kind is GroupKind.SHARE):
        owner.outbox.reply(ticket, DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND))
        return
    wanted: frozenset[str] | None = frozenset()
    if membership is not None and not membership.is_empty:
        if membership.describe().protocol_type != CONSUMER:
            owner.outbox.reply(ticket, DeleteOffsetsResult(ErrorCode.NON_EMPTY_GROUP))
            return
        wanted = membership.subscribed_topics()
    errors = tuple(
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        if wanted is None or partition.topic in wanted
        else ErrorCode.NONE
        for partition in partitions
    )
    removed = [p for p, error in zip(partitions, errors, strict=True) if not error]
    removed = [
        p
        for p in dict.fromkeys(removed)
        if owner.offsets.get(*p) is not None or owner.offsets.is_unstable(*p)
    ]
    result = DeleteOffsetsResult(partitions=errors)
    _stage(owner, removed, Answers(ticket, result, DeleteOffsetsResult))


def forget_topics(owner: OffsetsOwner, topics: Mapping[str, bytes | None]) -> None:
    """Drop the offsets of deleted topics, in whatever state the group is.

    Args:
        topics: names of deleted topics, each with the id of the topic that has the name now, or
            None. Offsets committed for the new topic are kept.
    """
    assert not owner.outbox.is_writing

    def is_gone(topic: str, committed: CommittedOffset) -> bool:
        if topic not in topics:
            return False
        living_id = topics[topic]
        return living_id is None or not committed.is_of(living_id)

    gone: dict[TopicPartition, None] = {}
    kept: set[TopicPartition] = set()
    for place, committed in chain(owner.offsets.items(), owner.offsets.pending_items()):
        if is_gone(place.topic, committed):
            gone[place] = None
        else:
            kept.add(place)
    if not owner.is_dead:
        # If a partition also has an offset for the new topic, in a transaction, no tombstone is
        # written, which would remove both. OffsetFetch does not return the offset for the former
        # topic, and the next start tries to remove it again.
        _stage(owner, [place for place in gone if place not in kept], None)


def expire(owner: OffsetsOwner, now: Now) -> None:
    """Drop offsets that were unused for the retention time (KIP-211, KIP-496), and the group if it
    is Empty and has no offsets left, however recently it became Empty. A group with unused member
    ids is kept.
    """
    assert not owner.outbox.is_writing
    if owner.is_dead:
        return
    is_expired = _expiry_rule(owner, now)
    partitions = [
        partition
        for partition, committed in owner.offsets.items()
        if is_expired(partition, committed) and not owner.offsets.is_unstable(*partition)
    ]
    is_over = (
        (owner.membership is None or owner.membership.is_unused)
        and len(partitions) == owner.offsets.count
        and not owner.offsets.has_pending
    )
    _stage(owner, partitions, None, with_group=is_over, expired=True)


def _expiry_rule(
    owner: OffsetsOwner, now: Now
) -> Callable[[TopicPartition, CommittedOffset], bool]:
    retention_ms = owner.config.offsets_retention_ms
    # Without a membership, the retention of each offset begins with its own commit.
    membership = owner.membership
    kept_topics, unused_since_ms = (
        OffsetRetention() if membership is None else membership.offset_retention()
    )

    def is_expired(partition: TopicPartition, committed: CommittedOffset) -> bool:
        if kept_topics is None or partition.topic in kept_topics:
            return False
        if committed.expire_timestamp_ms != -1:
            return now.wall_ms >= committed.expire_timestamp_ms
        base_ms = committed.commit_timestamp_ms if unused_since_ms == -1 else unused_since_ms
        return now.wall_ms - base_ms >= retention_ms

    return is_expired


def _stage(
    owner: OffsetsOwner,
    partitions: Sequence[TopicPartition],
    answers: Answers | None,
    *,
    with_group: bool = False,
    expired: bool = False,
) -> None:
    write = RemovalWrite(owner, partitions, with_group, expired, answers)
    if partitions or with_group:
        owner.outbox.stage(write)
    else:
        write.answer(ErrorCode.NONE)


@dataclass(slots=True, eq=False)
class RemovalWrite:
    owner: OffsetsOwner
    partitions: Sequence[TopicPartition]
    with_group: bool
    expired: bool
    answers: Answers | None

    def make_records(self) -> tuple[DurableRecord, ...]:
        offsets = self._offset_tombstones()
        return (*offsets, *self.owner.tombstones()) if self.with_group else offsets

    def _offset_tombstones(self) -> tuple[OffsetTombstone, ...]:
        group_id = self.owner.group_id
        return tuple(OffsetTombstone(group_id, *partition) for partition in self.partitions)

    def on_durable(self, now: Now) -> None:
        """Remove the offsets, also those of the same partitions in open transactions."""
        owner = self.owner
        for record in self._offset_tombstones():
            owner.offsets.apply(record)
        if self.with_group:
            owner.end(now)
        if self.partitions:
            owner.outbox.note(OffsetsRemoved(len(self.partitions), self.expired))
        if self.with_group:
            owner.outbox.note(GroupRemoved(self.expired))
        self.answer(ErrorCode.NONE)

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Answer with the error; nothing has changed."""
        del now
        self.answer(error)

    def answer_early(self, error: ErrorCode) -> None:
        self.answer(error)

    def answer(self, error: ErrorCode) -> None:
        answers, self.answers = self.answers, None
        if answers is not None:
            answers.give(self.owner.outbox, error)
