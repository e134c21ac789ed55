"""The changes of one step, before they are durable: an overlay of `ConsumerData`, which it leaves
alone, and the records that make the changes in the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kohort.groups.classic.stored_cause import encode_cause
from kohort.groups.consumer.data import ConsumerData, ResolvedRegex
from kohort.groups.consumer.member import (
    Member,
    MemberState,
    Partition,
    by_topic,
)
from kohort.groups.consumer.records import (
    ConsumerMemberTombstone,
    CurrentTombstone,
    EpochRecord,
    EpochTombstone,
    RegexRecord,
    RegexTombstone,
    TargetEpochRecord,
    TargetEpochTombstone,
    TargetRecord,
    TargetTombstone,
)
from kohort.groups.consumer.settings import Topic
from kohort.groups.events import Event, MemberRemoved, RemovalReason, Trigger
from kohort.groups.records import DurableRecord

_ABSENT: Final = object()


@dataclass(slots=True, eq=False)
class Draft:
    """See the module docstring. Reads include the changes made so far."""

    data: ConsumerData
    wall_ms: int = 0
    events: list[Event] = field(default_factory=list)
    """What to report when the changes are durable, in order."""
    causes: list[Trigger] = field(default_factory=list)
    """Why the epoch grows: one cause for each bump."""
    heartbeat_of: str | None = None
    """The member whose session begins anew with this step."""
    classic_joined: str | None = None
    """The classic member that joins with this step, and has to sync."""
    first_records: list[DurableRecord] = field(default_factory=list)
    """Tombstones of members that are removed or replaced, and others that come first."""
    _members: dict[str, Member | None] = field(default_factory=dict)
    """Changed members; None if removed."""
    _targets: dict[str, frozenset[Partition]] = field(default_factory=dict)
    _target_records: dict[str, TargetRecord] = field(default_factory=dict)
    """Made one by one as targets are set: a new target of thousands of members is set in steps."""
    _made: tuple[DurableRecord, ...] | None = None
    _regexes: dict[str, ResolvedRegex | None] = field(default_factory=dict)
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_computed_ms: int = 0
    checked_version: int = -1
    known_topics: Mapping[str, Topic] | None = None
    is_target_computed: bool = False
    begun: bytes | None = None

    def __post_init__(self) -> None:
        data = self.data
        self.epoch = data.epoch
        self.metadata_hash = data.metadata_hash
        self.target_epoch = data.target_epoch
        self.target_computed_ms = data.target_computed_ms
        self.checked_version = data.checked_version
        self.known_topics = data.known_topics
        self.begun = data.begun

    # Reads.

    def member(self, member_id: str) -> Member | None:
        changed = self._members.get(member_id, _ABSENT)
        return self.data.members.get(member_id) if changed is _ABSENT else changed  # type: ignore[return-value]

    def members(self) -> dict[str, Member]:
        """Return all members by id; walks all of them."""
        merged: dict[str, Member | None] = {**self.data.members, **self._members}
        return {key: member for key, member in merged.items() if member is not None}

    @property
    def member_count(self) -> int:
        known = self.data.members
        count = len(known)
        for member_id, member in self._members.items():
            count += (member is not None) - (member_id in known)
        return count

    def changed_members(self) -> Mapping[str, Member | None]:
        """Return the members that differ, None for those that are removed."""
        return self._members

    def target(self, member_id: str) -> frozenset[Partition]:
        target = self._targets.get(member_id)
        return self.data.target(member_id) if target is None else target

    def owner_of(self, partition: Partition) -> str | None:
        """Return the member to which a partition belongs, None if it is free."""
        owner = self.data.owners.get(partition)
        if owner is not None and owner in self._members:
            member = self._members[owner]
            if member is None or not (partition in member.assigned or partition in member.pending):
                owner = None
        if owner is None:
            for member_id, member in self._members.items():
                if member is not None and (
                    partition in member.assigned or partition in member.pending
                ):
                    return member_id
        return owner

    def regex_topics(self, regex: str) -> frozenset[str]:
        """Return what a regular expression has matched; nothing if it is not resolved."""
        resolved = self.regex(regex)
        return frozenset() if resolved is None else resolved.topics

    def regex(self, regex: str) -> ResolvedRegex | None:
        """Return what is known of a regular expression, None if it is not resolved."""
        changed = self._regexes.get(regex, _ABSENT)
        return self.data.regexes.get(regex) if changed is _ABSENT else changed  # type: ignore[return-value]

    # Changes.

    def put(self, member: Member) -> None:
        self._members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        """Remove a member and its target; its partitions are free."""
        self._members[member_id] = None
        self._targets[member_id] = frozenset()
        group_id = self.data.group_id
        self.first_records += (
            CurrentTombstone(group_id, member_id),
            TargetTombstone(group_id, member_id),
            ConsumerMemberTombstone(group_id, member_id),
        )

    def dismiss(self, member: Member, fate: RemovalReason, text: str | None = None) -> None:
        """Remove a member that has left or was removed, and report it."""
        self.remove(member.member_id)
        held = self.data.named((*member.assigned, *member.pending))
        self.events.append(MemberRemoved(member.ref, fate, text, held))

    def bump(self, cause: Trigger) -> None:
        """Let the group epoch grow by one."""
        data = self.data
        if not self.causes and data.epoch == data.target_epoch:
            self.begun = encode_cause(cause, data.state, data.target_epoch, self.wall_ms)
        self.epoch += 1
        self.causes.append(cause)

    def set_target(self, member_id: str, target: frozenset[Partition]) -> None:
        self._targets[member_id] = target
        self._target_records[member_id] = TargetRecord(
            self.data.group_id, member_id, by_topic(target)
        )

    def set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Replace what a regular expression matched; None if no member uses it."""
        self._regexes[regex] = resolved

    # The result.

    @property
    def is_empty(self) -> bool:
        """Whether no record is to be written."""
        return not self.records()

    def records(self) -> tuple[DurableRecord, ...]:
        """Return the records, in the order in which Kafka writes them. The draft is complete: it
        must not be changed afterwards.
        """
        if self._made is None:
            self._made = self._make_records()
        return self._made

    def _make_records(self) -> tuple[DurableRecord, ...]:
        data = self.data
        group_id = data.group_id
        stated: list[DurableRecord] = []
        current: list[DurableRecord] = []
        for member_id, member in self._members.items():
            if member is None:
                continue
            old = data.members.get(member_id)
            if old is None or not member.states_same(old):
                stated.append(member.member_record(group_id))
            if old is None or not member.has_same(old):
                current.append(member.current_record(group_id))
        regexes: list[DurableRecord] = [
            RegexTombstone(group_id, regex)
            if resolved is None
            else RegexRecord(
                group_id,
                regex,
                tuple(sorted(resolved.topics)),
                resolved.topics_version,
                resolved.resolved_at_ms,
            )
            for regex, resolved in self._regexes.items()
        ]
        epoch: list[DurableRecord] = []
        if self.epoch != data.epoch:
            begun = self.begun if self.epoch > self.target_epoch else None
            epoch.append(EpochRecord(group_id, self.epoch, self.metadata_hash, begun))
        targets: list[DurableRecord] = [
            record
            for member_id, record in self._target_records.items()
            if self._members.get(member_id, _ABSENT) is not None
            and self._targets[member_id] != data.target(member_id)
        ]
        target_epoch: list[DurableRecord] = []
        if (self.target_epoch, self.target_computed_ms) != (
            data.target_epoch,
            data.target_computed_ms,
        ):
            target_epoch.append(
                TargetEpochRecord(group_id, self.target_epoch, self.target_computed_ms, self.begun)
            )
        return (
            *self.first_records,
            *stated,
            *regexes,
            *epoch,
            *targets,
            *target_epoch,
            *current,
        )

    def apply(self) -> None:
        """Change the data: the records are durable."""
        data = self.data
        data.epoch = self.epoch
        data.metadata_hash = self.metadata_hash
        data.target_epoch = self.target_epoch
        data.target_computed_ms = self.target_computed_ms
        data.checked_version = self.checked_version
        data.known_topics = self.known_topics
        data.begun = self.begun if self.epoch > self.target_epoch else None
        # Partitions go from member to member: those that lose some come first.
        for member_id, member in self._members.items():
            if member is None:
                data.remove_member(member_id)
        changed = [member for member in self._members.values() if member is not None]
        for member in sorted(changed, key=_gains):
            data.put_member(member)
        for member_id, target in self._targets.items():
            if self._members.get(member_id, _ABSENT) is not None:
                data.set_target(member_id, target)
        for regex, resolved in self._regexes.items():
            if resolved is None:
                data.regexes.pop(regex, None)
            else:
                data.regexes[regex] = resolved


def _gains(member: Member) -> bool:
    return member.state is not MemberState.UNREVOKED_PARTITIONS


def tombstones(data: ConsumerData) -> tuple[DurableRecord, ...]:
    """Return the records that remove the group from the log, in the order in which Kafka writes
    them.
    """
    group_id = data.group_id
    members = list(data.members)
    return (
        *[CurrentTombstone(group_id, member_id) for member_id in members],
        *[TargetTombstone(group_id, member_id) for member_id in members],
        TargetEpochTombstone(group_id),
        *[ConsumerMemberTombstone(group_id, member_id) for member_id in members],
        *[RegexTombstone(group_id, regex) for regex in data.regexes],
        EpochTombstone(group_id),
    )
