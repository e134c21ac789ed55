"""Changes that are not durable yet, by one command or by several that share an append: an overlay
over `ConsumerData`, which stays unchanged, and the records to append.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeVar

from kohort.groups.classic.stored_cause import encode_cause
from kohort.groups.consumer.data import ASSIGNING, RECONCILING, STABLE, ConsumerData, ResolvedRegex
from kohort.groups.consumer.member import NOTHING, Member, MemberState
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
from kohort.groups.events import Event, MemberRemoved, RemovalReason, Trigger
from kohort.groups.kinds import DEAD, EMPTY
from kohort.groups.records import DurableRecord
from kohort.groups.steps import LARGE
from kohort.groups.topics import Partition, Topic, by_topic

K = TypeVar("K")

_ABSENT: Final = object()

PARTITIONS_MAX: Final = 5_000
"""Number of partitions of changed members above which a draft accepts no further command, because
their records must fit in one batch of the log."""


@dataclass(slots=True, eq=False)
class Draft:
    """Changes that are not durable yet. Reads include the changes made so far.

    Several commands may change one draft, one after another: `begin` is called before each but the
    first. A command that is answered with an error must not have changed it.
    """

    data: ConsumerData
    wall_ms: int = 0
    reports: list[Event] = field(default_factory=list)
    """Events of the previous commands, to publish in this order when the changes are durable."""
    sessions: list[str] = field(default_factory=list)
    """The members whose sessions the previous commands restart."""
    has_changed_state: bool = False
    """Whether previous commands of this draft have changed the group's state."""

    # The current command.
    events: list[Event] = field(default_factory=list)
    """Events to publish before those that `write.report` derives from the command's changes."""
    causes: list[Trigger] = field(default_factory=list)
    """The causes of the epoch bumps: one cause for each bump."""
    heartbeat_of: str | None = None
    """The member whose session this command restarts."""
    classic_joined: str | None = None
    """The member whose JoinGroup this command executes; it must send a SyncGroup in time."""
    is_target_computed: bool = False
    before: dict[str, Member | None] = field(default_factory=dict)
    """The changed members as they were before the command; None if they are new."""
    previous_state: str = ""
    """The group's state before the command."""
    previous_target_epoch: int = 0
    was_assigned: bool = False
    """Whether the target was up to date with the group epoch before the command."""

    first_records: list[DurableRecord] = field(default_factory=list)
    """Tombstones of removed or replaced members, and other records to append first."""
    _members: dict[str, Member | None] = field(default_factory=dict)
    """Changed members; None if removed."""
    _removed: set[str] = field(default_factory=set)
    """Members with tombstones in `first_records`; they may have joined again since."""
    _targets: dict[str, frozenset[Partition]] = field(default_factory=dict)
    _target_records: dict[str, TargetRecord] = field(default_factory=dict)
    """Records of changed targets. Each is created when its target is set, so that creating
    thousands of records is divided into steps."""
    _regexes: dict[str, ResolvedRegex | None] = field(default_factory=dict)
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_computed_ms: int = 0
    checked_version: int = -1
    known_topics: Mapping[str, Topic] | None = None
    names_changed: bool = False
    """Whether the set of subscribed topics has changed since `metadata_hash` was computed."""
    begun: bytes | None = None
    more_bytes: int = 0
    """Bytes by which the changes so far increase the members' memory."""
    _partition_count: int = 0

    # Changes to the counts in `data`, so that no command iterates over all changed members.
    member_count: int = 0
    """The number of members after the changes."""
    _instances: dict[str, str | None] = field(default_factory=dict)
    _owners: dict[Partition, str | None] = field(default_factory=dict)
    _votes: dict[str, int] = field(default_factory=dict)
    _subscribers: dict[str, int] = field(default_factory=dict)
    _regex_subscribers: dict[str, int] = field(default_factory=dict)
    _at_epoch: dict[tuple[int, MemberState], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data = self.data
        self.epoch = data.epoch
        self.metadata_hash = data.metadata_hash
        self.target_epoch = self.previous_target_epoch = data.target_epoch
        self.target_computed_ms = data.target_computed_ms
        self.checked_version = data.checked_version
        self.known_topics = data.known_topics
        self.begun = data.begun
        self.member_count = len(data.members)
        self.previous_state = data.state
        self.was_assigned = data.epoch == data.target_epoch

    def begin(self, wall_ms: int) -> None:
        """Begin the next command, after `ConsumerWrite.add` has ended the previous one."""
        self.wall_ms = wall_ms
        self.events = []
        self.causes = []
        self.heartbeat_of = self.classic_joined = None
        self.is_target_computed = False
        self.before = {}
        self.previous_state = self.state
        self.previous_target_epoch = self.target_epoch
        self.was_assigned = self.epoch == self.target_epoch

    @property
    def is_full(self) -> bool:
        """Whether the draft accepts no more commands: it is large, or has computed a target.
        The next command could begin another rebalance, which needs an append of its own.
        """
        return self.is_target_computed or self._partition_count > PARTITIONS_MAX

    @property
    def is_large(self) -> bool:
        """Whether to create the draft's records in a separate step."""
        return self._partition_count > LARGE

    # Reads.

    def member(self, member_id: str) -> Member | None:
        changed = self._members.get(member_id, _ABSENT)
        return self.data.members.get(member_id) if changed is _ABSENT else changed  # type: ignore[return-value]

    def members(self) -> dict[str, Member]:
        """Return all members by id; iterates over all of them."""
        merged: dict[str, Member | None] = {**self.data.members, **self._members}
        return {key: member for key, member in merged.items() if member is not None}

    def holder_of(self, instance_id: str) -> str | None:
        """Return the id of the member with this instance id, None if there is none."""
        changed = self._instances.get(instance_id, _ABSENT)
        return self.data.instances.get(instance_id) if changed is _ABSENT else changed  # type: ignore[return-value]

    def changed_members(self) -> Mapping[str, Member | None]:
        """Return the members that the draft changes, by id; None for those that it removes."""
        return self._members

    def target(self, member_id: str) -> frozenset[Partition]:
        target = self._targets.get(member_id)
        return self.data.target(member_id) if target is None else target

    def owner_of(self, partition: Partition) -> str | None:
        """Return the member to which a partition belongs, None if it is free."""
        changed = self._owners.get(partition, _ABSENT)
        return self.data.owners.get(partition) if changed is _ABSENT else changed  # type: ignore[return-value]

    def votes(self) -> Counter[str]:
        """Count the members that request each assignor."""
        return _added(self.data.votes, self._votes)

    def subscribers(self) -> Counter[str]:
        """Count the members that subscribe to each topic by name."""
        return _added(self.data.subscribers, self._subscribers)

    def regex_subscribers(self) -> Counter[str]:
        """Count the members that subscribe by each regular expression."""
        counts = _added(self.data.regex_subscribers, self._regex_subscribers)
        del counts[""]
        return counts

    @property
    def unreconciled_count(self) -> int:
        """Number of members that have not reached the current target."""
        key = (self.target_epoch, MemberState.STABLE)
        return self.member_count - self.data.at_epoch[key] - self._at_epoch.get(key, 0)

    @property
    def state(self) -> str:
        """Name of the group's state in the protocol."""
        if self.data.is_dead:
            return DEAD
        if not self.member_count:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        return RECONCILING if self.unreconciled_count else STABLE

    def regex_topics(self, regex: str) -> frozenset[str]:
        """Return the topics that a regular expression matched; none if it is not resolved."""
        resolved = self.regex(regex)
        return frozenset() if resolved is None else resolved.topics

    def regex(self, regex: str) -> ResolvedRegex | None:
        """Return a regular expression's last resolution, with its topics; None if unresolved."""
        changed = self._regexes.get(regex, _ABSENT)
        return self.data.regexes.get(regex) if changed is _ABSENT else changed  # type: ignore[return-value]

    # Changes.

    def put(self, member: Member) -> None:
        member_id = member.member_id
        old = self.member(member_id)
        self.before.setdefault(member_id, old)
        if old is None:
            self._members.pop(member_id, None)  # A rejoining member moves to the end.
        self._members[member_id] = member
        self._partition_count += len(member.assigned) + len(member.pending)
        self._count(old, member)

    def remove(self, member_id: str) -> None:
        """Remove a member and its target; its partitions become free."""
        old = self.member(member_id)
        self.before.setdefault(member_id, old)
        self._members[member_id] = None
        self._removed.add(member_id)
        self._targets[member_id] = frozenset()
        self._target_records.pop(member_id, None)
        group_id = self.data.group_id
        self.first_records += (
            CurrentTombstone(group_id, member_id),
            TargetTombstone(group_id, member_id),
            ConsumerMemberTombstone(group_id, member_id),
        )
        if old is not None:
            self._count(old, None)

    def _count(self, old: Member | None, new: Member | None) -> None:
        """Update the counts and owners for a changed member."""
        if old is not None:
            _add(self._at_epoch, (old.epoch, old.state), -1)
        if new is not None:
            _add(self._at_epoch, (new.epoch, new.state), 1)
        if old is None or new is None or not new.states_same(old):
            self._count_stated(old, new)
        had = (NOTHING, NOTHING) if old is None else (old.assigned, old.pending)
        has = (NOTHING, NOTHING) if new is None else (new.assigned, new.pending)
        if had[0] is has[0] and had[1] is has[1]:
            return
        owners = self._owners
        if old is not None:
            for partition in chain(*had):
                is_kept = partition in has[0] or partition in has[1]
                if not is_kept and self.owner_of(partition) == old.member_id:
                    owners[partition] = None
        if new is not None:
            for partition in chain(*has):
                if not (partition in had[0] or partition in had[1]):
                    owners[partition] = new.member_id

    def _count_stated(self, old: Member | None, new: Member | None) -> None:
        self.member_count += (new is not None) - (old is not None)
        if old is not None:
            if old.instance_id is not None and self.holder_of(old.instance_id) == old.member_id:
                self._instances[old.instance_id] = None
            if old.server_assignor is not None:
                _add(self._votes, old.server_assignor, -1)
        if new is not None:
            if new.instance_id is not None:
                self._instances[new.instance_id] = new.member_id
            if new.server_assignor is not None:
                _add(self._votes, new.server_assignor, 1)
        self._count_names(
            () if old is None else old.topic_names, () if new is None else new.topic_names
        )
        old_regex = "" if old is None else old.topic_regex
        new_regex = "" if new is None else new.topic_regex
        if old_regex != new_regex:
            self.names_changed = True
            _add(self._regex_subscribers, old_regex, -1)
            _add(self._regex_subscribers, new_regex, 1)

    def _count_names(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        if old == new:
            return
        counts = self.data.subscribers
        for name in old:
            if not _add(self._subscribers, name, -1) + counts[name]:
                self.names_changed = True
        for name in new:
            if _add(self._subscribers, name, 1) + counts[name] == 1:
                self.names_changed = True

    def dismiss(self, member: Member, fate: RemovalReason, text: str | None = None) -> None:
        """Remove a member, and add the event that reports why."""
        self.remove(member.member_id)
        held = self.data.named((*member.assigned, *member.pending))
        self.events.append(MemberRemoved(member.ref, fate, text, held))

    def bump(self, cause: Trigger) -> None:
        """Increase the group epoch by one."""
        if self.epoch == self.target_epoch:
            self.begun = encode_cause(cause, self.previous_state, self.target_epoch, self.wall_ms)
        self.epoch += 1
        self.causes.append(cause)

    def set_target(self, member_id: str, target: frozenset[Partition]) -> None:
        self._targets[member_id] = target
        if member_id in self._removed:
            is_logged = not target and member_id not in self._target_records
        else:
            is_logged = target == self.data.target(member_id)
        if is_logged:
            self._target_records.pop(member_id, None)
            return
        self._target_records[member_id] = TargetRecord(
            self.data.group_id, member_id, by_topic(target)
        )

    def set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set the topics that a regular expression matched, or None if no member uses it now."""
        self._regexes[regex] = resolved
        self.names_changed = True

    # The result.

    @property
    def is_empty(self) -> bool:
        """Whether there is no record to append."""
        data = self.data
        return (
            self.epoch == data.epoch
            and self.target_epoch == data.target_epoch
            and self.target_computed_ms == data.target_computed_ms
            and not (self.first_records or self._regexes or self._target_records)
            and all(member == data.members.get(key) for key, member in self._members.items())
        )

    def records(self) -> tuple[DurableRecord, ...]:
        """Return the records, in the order in which Kafka writes them. Several changes of one key
        result in one record; if any command has changed anything, there is at least one record.
        """
        data = self.data
        group_id = data.group_id
        stated: list[DurableRecord] = []
        current: list[DurableRecord] = []
        for member_id, member in self._members.items():
            if member is None:
                continue
            old = None if member_id in self._removed else data.members.get(member_id)
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
        target_epoch: list[DurableRecord] = []
        if (self.target_epoch, self.target_computed_ms) != (
            data.target_epoch,
            data.target_computed_ms,
        ):
            target_epoch.append(
                TargetEpochRecord(group_id, self.target_epoch, self.target_computed_ms, self.begun)
            )
        records = (
            *self.first_records,
            *stated,
            *regexes,
            *epoch,
            *self._target_records.values(),
            *target_epoch,
            *current,
        )
        if not records:
            # The changes cancel out: a static member has left and returned.
            members = self._members.values()
            return tuple([member.current_record(group_id) for member in members if member])
        return records

    def apply(self) -> None:
        """Apply the draft's changes to `data`, after its records have become durable."""
        data = self.data
        data.epoch = self.epoch
        data.metadata_hash = self.metadata_hash
        data.target_epoch = self.target_epoch
        data.target_computed_ms = self.target_computed_ms
        data.checked_version = self.checked_version
        data.known_topics = self.known_topics
        data.begun = self.begun if self.epoch > self.target_epoch else None
        for member_id in self._removed:
            data.remove_member(member_id)
        for member in self._members.values():
            if member is not None:
                data.put_member(member)
        for member_id, target in self._targets.items():
            if self._members.get(member_id, _ABSENT) is not None:
                data.set_target(member_id, target)
        for regex, resolved in self._regexes.items():
            if resolved is None:
                data.regexes.pop(regex, None)
            else:
                data.regexes[regex] = resolved


def _added(counts: Counter[str], differences: Mapping[str, int]) -> Counter[str]:
    total = Counter(counts)
    for key, difference in differences.items():
        total[key] += difference
    return total


def _add(counts: dict[K, int], key: K, difference: int) -> int:
    count = counts[key] = counts.get(key, 0) + difference
    return count


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
