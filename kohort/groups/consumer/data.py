"""The data of a consumer group.

All fields but volatile ones are durable state: the result of `apply` for the records in the log,
in any order that compaction leaves. A step never changes them directly: it changes a `Draft`, whose
records are appended, and `ConsumerWrite` replaces the values here when they are durable. Only one
draft exists at a time: a step continues the previous step's draft, or waits until that is durable.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from kohort.groups.consumer.member import Member, MemberState
from kohort.groups.consumer.records import (
    ConsumerMemberRecord,
    CurrentRecord,
    EpochRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
)
from kohort.groups.effects import TimerKey
from kohort.groups.kinds import DEAD, EMPTY
from kohort.groups.member_memory import MemberAccount
from kohort.groups.member_sessions import Session
from kohort.groups.outbox import Outbox
from kohort.groups.records import DurableRecord
from kohort.groups.refusals import Refusals
from kohort.groups.topics import Partition, Topic, Topics, flat


class ConsumerSettings(NamedTuple):
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    """How often members are to send heartbeats."""
    assignment_interval_ms: int = 1_000
    """Minimum time between two target assignments."""
    max_size: int = 2**31 - 1
    """Maximum number of members."""
    assignors: Sequence[str] = ("uniform", "range")
    """Names of the assignors; the first is used unless members request another."""
    regex_refresh_interval_ms: int = 600_000
    """How often regular expressions are resolved if no topic was created."""
    allows_upgrade: bool = True
    """Whether a classic group with members is upgraded when a consumer-protocol member joins."""
    allows_downgrade: bool = True
    """Whether a group becomes classic when its last member with the consumer protocol leaves."""
    allows_classic_members: bool = True
    """Whether classic members may join."""


ASSIGNING: Final = "Assigning"
"""The group epoch has increased, and its target assignment is not computed yet."""
RECONCILING: Final = "Reconciling"
"""Some members have not reached their target assignment yet."""
STABLE: Final = "Stable"
"""Each member has its target assignment."""

FIRST_EPOCH: Final = 1
"""Epoch of a new group, before its first member joins."""


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    topics_version: int
    """`Topics.version` at the time of the match; meaningless after a restart."""
    resolved_at_ms: int
    """Wall-clock time."""


@dataclass(slots=True, eq=False)
class ConsumerData:
    """The state of one consumer group. Partitions are (topic id, number)."""

    group_id: str
    outbox: Outbox
    topics: Topics
    read_settings: Callable[[str], ConsumerSettings]
    account: MemberAccount

    epoch: int = FIRST_EPOCH
    """The group epoch: grows with every change that may need another assignment."""
    metadata_hash: int = 0
    """Hash of the subscribed topics' metadata when the epoch last increased."""
    target_epoch: int = FIRST_EPOCH
    target_computed_ms: int = 0
    """Wall-clock time; 0 if no target was computed yet."""
    begun: bytes | None = None
    """The cause of the rebalance until its target is computed; see `classic.stored_cause`."""
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    targets: dict[str, frozenset[Partition]] = field(default_factory=dict)
    """Target assignments by member id, without empty ones."""
    owners: dict[Partition, str] = field(default_factory=dict)
    """The owner of each partition: the member that has it assigned, or pending revocation."""
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    """The topics that each regular expression matched; only resolved expressions."""

    # Updated with each change, so that no step iterates over all members.
    votes: Counter[str] = field(default_factory=Counter)
    """Number of members that request each assignor, by its name."""
    subscribers: Counter[str] = field(default_factory=Counter)
    """Number of members that subscribe to each topic by name."""
    regex_subscribers: Counter[str] = field(default_factory=Counter)
    """Number of members that subscribe to each regular expression."""
    at_epoch: Counter[tuple[int, MemberState]] = field(default_factory=Counter)
    classic_count: int = 0
    """Number of members that use the classic protocol."""
    classic_protocols: Counter[str] = field(default_factory=Counter)
    """Number of classic members that support each assignor, by its name."""

    # Volatile.
    sessions: dict[str, Session] = field(default_factory=dict)
    deadlines: dict[TimerKey, int] = field(default_factory=dict)
    """Deadlines of all timers except those of sessions; monotonic."""
    told_ms: dict[str, int] = field(default_factory=dict)
    """When each member in UNREVOKED_PARTITIONS was sent the revocation; wall-clock time."""
    checked_version: int = -1
    """`Topics.version` when the metadata hash was last computed; -1 to compute it again."""
    known_topics: Mapping[str, Topic] | None = None
    """The subscribed topics that existed when `checked_version` was set; None if unknown."""
    since_ms: int = -1
    """Wall-clock time at which the group entered its present state."""
    shares_appends: bool = True
    """Whether several heartbeats may share an append."""
    refusals: Refusals = field(default_factory=Refusals)
    lost: dict[str, int] = field(default_factory=dict)
    """When the latest members whose session expired sent their last heartbeat, by member id."""
    is_dead: bool = False

    @property
    def settings(self) -> ConsumerSettings:
        """The group's settings, which may be altered at any time."""
        return self.read_settings(self.group_id)

    @property
    def unreconciled_count(self) -> int:
        """Number of members that have not reached the current target."""
        return len(self.members) - self.at_epoch[self.target_epoch, MemberState.STABLE]

    @property
    def state(self) -> str:
        if self.is_dead:
            return DEAD
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        return RECONCILING if self.unreconciled_count else STABLE

    # Changes; called when they are durable.

    def put_member(self, member: Member) -> None:
        old = self.members.get(member.member_id)
        if old is None:
            self.account.add(1, member.size)
        else:
            self.account.add(0, member.size - old.size)
            self._uncount(old, member)
        self.members[member.member_id] = member
        self._count(member, old)

    def remove_member(self, member_id: str) -> None:
        """Remove a member, its target and its session; does nothing if it is unknown."""
        self.targets.pop(member_id, None)
        self.sessions.pop(member_id, None)
        self.told_ms.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self.account.add(-1, -member.size)
            self._uncount(member, None)

    def set_target(self, member_id: str, target: frozenset[Partition]) -> None:
        if target:
            self.targets[member_id] = target
        else:
            self.targets.pop(member_id, None)

    def _count(self, member: Member, old: Member | None) -> None:
        member_id = member.member_id
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id
        if member.server_assignor is not None:
            self.votes[member.server_assignor] += 1
        if old is None or old.topic_names != member.topic_names:
            self.subscribers.update(member.topic_names)
        if member.topic_regex:
            self.regex_subscribers[member.topic_regex] += 1
        self.at_epoch[member.epoch, member.state] += 1
        if member.classic is not None:
            self.classic_count += 1
            self.classic_protocols.update({name for name, _ in member.classic.protocols})
        if old is None or old.assigned is not member.assigned or old.pending is not member.pending:
            for partition in member.assigned:
                self.owners[partition] = member_id
            for partition in member.pending:
                self.owners[partition] = member_id

    def _uncount(self, member: Member, new: Member | None) -> None:
        """Undo `_count`. `new` replaces `member`; None if the member is removed."""
        member_id = member.member_id
        instance_id = member.instance_id
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]
        if member.server_assignor is not None:
            _decrement(self.votes, member.server_assignor)
        if new is None or new.topic_names != member.topic_names:
            for name in member.topic_names:
                _decrement(self.subscribers, name)
        if member.topic_regex:
            _decrement(self.regex_subscribers, member.topic_regex)
        _decrement(self.at_epoch, (member.epoch, member.state))
        if member.classic is not None:
            self.classic_count -= 1
            self.classic_protocols.subtract({name for name, _ in member.classic.protocols})
        if new is None or new.assigned is not member.assigned or new.pending is not member.pending:
            for partition in (*member.assigned, *member.pending):
                if self.owners.get(partition) == member_id:
                    del self.owners[partition]

    # Replay.

    def apply(self, record: DurableRecord) -> None:
        """Apply a record from the log. It must be the last with its key, and not a tombstone."""
        match record:
            case ConsumerMemberRecord():
                self.put_member(self._member(record.member_id).with_stated(record))
            case CurrentRecord():
                self.put_member(self._member(record.member_id).with_current(record))
            case TargetRecord():
                self.set_target(record.member_id, flat(record.partitions))
            case EpochRecord():
                self.epoch = record.epoch
                self.metadata_hash = record.metadata_hash
                self.begun = record.begun
            case TargetEpochRecord():
                self.target_epoch = record.epoch
                self.target_computed_ms = record.computed_at_ms
            case RegexRecord():
                self.regexes[record.regex] = ResolvedRegex(
                    frozenset(record.topics), -1, record.resolved_at_ms
                )
            case _:
                raise AssertionError(record)

    def _member(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id)

    # Reads.

    def target(self, member_id: str) -> frozenset[Partition]:
        return self.targets.get(member_id, _NO_PARTITIONS)

    def named(self, partitions: Iterable[Partition]) -> tuple[tuple[str, int], ...]:
        """Return partitions with the names of their topics, without those of deleted topics."""
        name_of = self.topics.name_of
        return tuple(
            [(name, number) for topic_id, number in partitions if (name := name_of(topic_id))]
        )

    def regex_topics(self, regex: str) -> frozenset[str]:
        """Return the topics that a regular expression matched; none if it is not resolved yet."""
        resolved = self.regexes.get(regex)
        return _NO_NAMES if resolved is None else resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        """Return the names of all topics that members subscribe to, existing or not."""
        return frozenset(self.subscribers).union(
            *(self.regex_topics(regex) for regex in self.regex_subscribers)
        )


K = TypeVar("K")

_NO_PARTITIONS: Final[frozenset[Partition]] = frozenset()
_NO_NAMES: Final[frozenset[str]] = frozenset()


def _decrement(counts: Counter[K], key: K) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
