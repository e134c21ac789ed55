"""The data of a share group.

`ShareState` is the durable state: the result of `apply` for the records in the log. A command
changes a copy of it. The copy's `records_since` are appended; once they are durable, it replaces
the original. A group has few members, so that copying references to them costs little.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kohort.groups.effects import TimerKey
from kohort.groups.events import MemberRef
from kohort.groups.kinds import DEAD, EMPTY
from kohort.groups.member_memory import MemberAccount
from kohort.groups.member_sessions import Session
from kohort.groups.outbox import Outbox
from kohort.groups.records import DurableRecord
from kohort.groups.refusals import Refusals
from kohort.groups.share.records import (
    CURRENT,
    EPOCH,
    MEMBER,
    PARTITIONS,
    TARGET,
    TARGET_EPOCH,
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    SharePartitionsRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    ShareTombstone,
    StoredTopic,
)
from kohort.groups.topics import Partition, Topic, Topics, by_topic, flat


class ShareSettings(NamedTuple):
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    """How often members are to send heartbeats."""
    assignment_interval_ms: int = 1_000
    """The least time between two target assignments."""
    max_size: int = 200
    """Maximum number of members."""


STABLE: Final = "Stable"
"""The group has members."""

FIRST_EPOCH: Final = 1
"""Epoch of a new group, before its first member joins."""

NO_PARTITIONS: Final[frozenset[Partition]] = frozenset()

MEMBER_BYTES: Final = 1_000
NAME_BYTES: Final = 60
PARTITION_BYTES: Final = 150
"""Approximate memory of a partition in a member's current and target assignments."""


class ShareMember(NamedTuple):
    """A member. A change creates a new value, so that it can be compared with the old one."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """The subscribed topics, sorted, without repetitions."""
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[Partition] = NO_PARTITIONS
    client_software: str = ""
    """As in `MemberRef.client_software`; not stored in any record."""

    @property
    def ref(self) -> MemberRef:
        return MemberRef(
            self.member_id, None, self.client_id, self.client_host, self.client_software
        )

    @property
    def size(self) -> int:
        """Approximate memory of the member in bytes, including the texts that its client sent."""
        texts = (self.member_id, self.rack_id, self.client_id, self.client_host)
        size = MEMBER_BYTES + sum([len(text) for text in texts if text])
        size += sum([NAME_BYTES + len(name) for name in self.topic_names])
        return size + PARTITION_BYTES * len(self.assigned)

    def member_record(self, group_id: str) -> ShareMemberRecord:
        return ShareMemberRecord(group_id, *self[:5])

    def current_record(self, group_id: str) -> ShareCurrentRecord:
        return ShareCurrentRecord(
            group_id, self.member_id, self.epoch, self.previous_epoch, by_topic(self.assigned)
        )


@dataclass(slots=True, eq=True)
class ShareState:
    """The durable state of one share group. Partitions are (topic id, number)."""

    epoch: int = FIRST_EPOCH
    """The group epoch: grows with every change that may need another assignment."""
    metadata_hash: int = 0
    """Hash of the subscribed topics' metadata when the epoch last increased."""
    target_epoch: int = FIRST_EPOCH
    target_computed_ms: int = 0
    """Wall-clock time of the last target computation; 0 before the first."""
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, frozenset[Partition]] = field(default_factory=dict)
    """Target assignments by member id; a member that joined since the last target has none."""
    initialized: dict[bytes, StoredTopic] = field(default_factory=dict)
    """The partitions for which the group stores state, by topic id."""

    def copy(self) -> "ShareState":
        return ShareState(
            self.epoch,
            self.metadata_hash,
            self.target_epoch,
            self.target_computed_ms,
            dict(self.members),
            dict(self.targets),
            dict(self.initialized),
        )

    def remove(self, member_id: str) -> None:
        del self.members[member_id]
        self.targets.pop(member_id, None)

    # Reads.

    def subscribed_topics(self) -> frozenset[str]:
        """Return the names of all topics that members subscribe to, existing or not."""
        return frozenset().union(*[member.topic_names for member in self.members.values()])

    def size(self) -> int:
        return sum([member.size for member in self.members.values()])

    # Records.

    def apply(self, record: DurableRecord) -> None:
        """Apply one record of the log, not a tombstone. Compaction removes records, so that a
        member's remaining ones may be in any order.
        """
        match record:
            case ShareMemberRecord():
                self._update(record.member_id, *record[2:5], tuple(sorted({*record.topic_names})))
            case ShareCurrentRecord():
                member = self.members.get(record.member_id) or ShareMember(record.member_id)
                self.members[record.member_id] = member._replace(
                    epoch=record.epoch,
                    previous_epoch=record.previous_epoch,
                    assigned=flat(record.partitions),
                )
            case ShareTargetRecord():
                self.targets[record.member_id] = flat(record.partitions)
            case ShareEpochRecord():
                self.epoch = record.epoch
                self.metadata_hash = record.metadata_hash
            case ShareTargetEpochRecord():
                self.target_epoch = record.epoch
                self.target_computed_ms = record.computed_at_ms
            case SharePartitionsRecord():
                self.initialized = _merged(record)
            case _:
                raise AssertionError(record)

    def _update(
        self,
        member_id: str,
        rack_id: str | None,
        client_id: str,
        client_host: str,
        topic_names: tuple[str, ...],
    ) -> None:
        member = self.members.get(member_id) or ShareMember(member_id)
        self.members[member_id] = member._replace(
            rack_id=rack_id,
            client_id=client_id,
            client_host=client_host,
            topic_names=topic_names,
        )

    def records_since(self, old: "ShareState", group_id: str) -> tuple[DurableRecord, ...]:
        """Return the records that change `old` to this state, in the order in which Kafka writes
        them.
        """
        gone = [member_id for member_id in old.members if member_id not in self.members]
        records: list[DurableRecord] = [
            ShareTombstone(group_id, record_type, member_id)
            for member_id in gone
            for record_type in (CURRENT, TARGET, MEMBER)
        ]
        current: list[DurableRecord] = []
        for member_id, member in self.members.items():
            before = old.members.get(member_id)
            if before is member:
                continue
            stated = member.member_record(group_id)
            if before is None or before.member_record(group_id) != stated:
                records.append(stated)
            if before is None or before[_CURRENT] != member[_CURRENT]:
                current.append(member.current_record(group_id))
        if self.initialized != old.initialized:
            records.append(SharePartitionsRecord(group_id, dict(self.initialized)))
        if (self.epoch, self.metadata_hash) != (old.epoch, old.metadata_hash):
            records.append(ShareEpochRecord(group_id, self.epoch, self.metadata_hash))
        for member_id, target in self.targets.items():
            before_target = old.targets.get(member_id)
            if before_target is not target and before_target != target:
                records.append(ShareTargetRecord(group_id, member_id, by_topic(target)))
        computed = (self.target_epoch, self.target_computed_ms)
        if computed != (old.target_epoch, old.target_computed_ms):
            records.append(ShareTargetEpochRecord(group_id, *computed))
        return (*records, *current)

    def tombstones(self, group_id: str) -> tuple[DurableRecord, ...]:
        """Return the records that remove the group from the log, in Kafka's order."""
        return (
            *[
                ShareTombstone(group_id, record_type, member_id)
                for member_id in self.members
                for record_type in (CURRENT, TARGET, MEMBER)
            ],
            *[ShareTombstone(group_id, of_group) for of_group in (TARGET_EPOCH, PARTITIONS, EPOCH)],
        )


_CURRENT: Final = slice(5, 8)
"""The fields of `ShareMember` that its `current_record` contains."""


def _merged(record: SharePartitionsRecord) -> dict[bytes, StoredTopic]:
    """Return the initialized partitions, with those that a Kafka broker was initializing."""
    topics = dict(record.initialized)
    for topic_id, topic in record.initializing.items():
        present = topics.get(topic_id)
        numbers = set(topic.partitions).union(() if present is None else present.partitions)
        topics[topic_id] = StoredTopic(topic.name, tuple(sorted(numbers)))
    return topics


@dataclass(slots=True, eq=False)
class ShareData:
    """One share group: its durable state, and the state that a restart loses."""

    group_id: str
    outbox: Outbox
    topics: Topics
    read_settings: Callable[[str], ShareSettings]
    account: MemberAccount
    state: ShareState = field(default_factory=ShareState)

    # Volatile.
    sessions: dict[str, Session] = field(default_factory=dict)
    deadlines: dict[TimerKey, int] = field(default_factory=dict)
    """Deadlines of the timers other than sessions, by the monotonic clock."""
    checked_version: int = -1
    """`Topics.version` at the last check of subscribed topics for changes; -1 to check again."""
    known_topics: Mapping[str, Topic] | None = None
    """The subscribed topics that existed when `checked_version` was set; None if unknown."""
    since_ms: int = -1
    """Wall-clock time at which the group entered its present state."""
    is_dead: bool = False
    refusals: Refusals = field(default_factory=Refusals)

    @property
    def settings(self) -> ShareSettings:
        """The group's settings, which may be altered at any time."""
        return self.read_settings(self.group_id)

    @property
    def state_name(self) -> str:
        if self.is_dead:
            return DEAD
        return STABLE if self.state.members else EMPTY

    def named(self, partitions: Iterable[Partition]) -> tuple[tuple[str, int], ...]:
        """Return partitions with the names of their topics, without those of deleted topics."""
        name_of = self.topics.name_of
        return tuple(
            [(name, number) for topic_id, number in partitions if (name := name_of(topic_id))]
        )
