"""A member of a consumer group, and the partitions that it has. All values are immutable."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from kohort.groups.consumer.records import ClassicPart, ConsumerMemberRecord, CurrentRecord
from kohort.groups.events import MemberRef
from kohort.groups.topics import Partition

Owned: TypeAlias = Mapping[Partition, int]
"""Partitions of a member, each with the epoch at which it was assigned."""

NOTHING: Final[Owned] = MappingProxyType({})

MEMBER_BYTES: Final = 1_000
NAME_BYTES: Final = 60
PARTITION_BYTES: Final = 200
"""Estimated memory per partition: in its member, in the target, and in the table of owners."""

LEFT_FOR_RESTART: Final = -2
"""Epoch of a static member whose process has left and is expected back."""


class MemberState(IntEnum):
    """A member's progress towards its target; `value` is the number in the log."""

    STABLE = 0
    """The member has all partitions of the target for its epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member has partitions to revoke, and stays at its epoch until it has revoked them."""
    UNRELEASED_PARTITIONS = 2
    """The member has the target's epoch, but some of its partitions still belong to other
    members."""
    UNKNOWN = 127
    """A state that a newer broker has stored."""

    @classmethod
    def of(cls, number: int) -> "MemberState":
        """Return the state with a number, UNKNOWN for an undefined one."""
        return _STATES.get(number, cls.UNKNOWN)


_STATES: Final = {state.value: state for state in MemberState}


class Member(NamedTuple):
    """A member. A change creates a new value, so that it can be compared with the old one."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] = ()
    """The subscribed topics' names: sorted, without repetitions."""
    topic_regex: str = ""
    """RE2 expression of further topics that the member subscribes to; empty if there is none."""
    server_assignor: str | None = None
    classic: ClassicPart | None = None
    """Session timeout and protocols of a member that uses the classic protocol; None for others."""
    epoch: int = 0
    """The member epoch: 0 before the first assignment, `LEFT_FOR_RESTART` during a restart."""
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING
    pending: Owned = NOTHING
    """Partitions that the member has to revoke, and has not revoked yet."""
    client_software: str = ""
    """Name and version of the client library (see `MemberRef`); not part of any record."""

    @property
    def ref(self) -> MemberRef:
        return MemberRef(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.client_software,
        )

    @property
    def size(self) -> int:
        """Approximate memory of the member in bytes, including its subscription and partitions."""
        texts = (self.member_id, self.instance_id, self.client_id, self.topic_regex)
        size = MEMBER_BYTES + sum([len(text) for text in texts if text])
        size += sum([NAME_BYTES + len(name) for name in self.topic_names])
        size += PARTITION_BYTES * (len(self.assigned) + len(self.pending))
        if self.classic is not None:
            size += sum(
                [NAME_BYTES + len(name) + len(data) for name, data in self.classic.protocols]
            )
        return size

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.epoch == target_epoch and self.state is MemberState.STABLE

    def is_subscribed(self, other: "Member") -> bool:
        return self.topic_names == other.topic_names and self.topic_regex == other.topic_regex

    def rejoining(self, member_id: str) -> "Member":
        """Return the member as it rejoins under `member_id`: at epoch 0, with nothing to revoke."""
        return self._replace(
            member_id=member_id,
            epoch=0,
            previous_epoch=0,
            state=MemberState.STABLE,
            pending=NOTHING,
        )

    def states_same(self, other: "Member") -> bool:
        """Whether `other`, a member with the same id, has an equal `member_record`."""
        return self[:_STATED_COUNT] == other[:_STATED_COUNT]

    def has_same(self, other: "Member") -> bool:
        """Whether `other`, a member with the same id, has an equal `current_record`."""
        return self[_STATED_COUNT:-1] == other[_STATED_COUNT:-1]

    def member_record(self, group_id: str) -> ConsumerMemberRecord:
        return ConsumerMemberRecord(
            group_id,
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.topic_names,
            self.topic_regex,
            self.rebalance_timeout_ms,
            self.server_assignor,
            self.classic,
        )

    def current_record(self, group_id: str) -> CurrentRecord:
        return CurrentRecord(
            group_id,
            self.member_id,
            self.epoch,
            self.previous_epoch,
            self.state.value,
            epochs_by_topic(self.assigned),
            epochs_by_topic(self.pending),
        )

    def with_stated(self, record: ConsumerMemberRecord) -> "Member":
        """Return the member with the subscription and client data from a record."""
        return self._replace(
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            topic_names=tuple(sorted(set(record.topic_names))),
            topic_regex=record.topic_regex or "",
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            server_assignor=record.server_assignor,
            classic=record.classic,
        )

    def with_current(self, record: CurrentRecord) -> "Member":
        """Return the member with the epoch, state and partitions from a record."""
        return self._replace(
            epoch=record.epoch,
            previous_epoch=record.previous_epoch,
            state=MemberState.of(record.state),
            assigned=flat_epochs(record.assigned),
            pending=flat_epochs(record.pending),
        )


_STATED_COUNT: Final = Member._fields.index("epoch")
"""Number of fields that `member_record` stores. The fields after them are epoch, state, partitions
and software."""


def epochs_by_topic(owned: Owned) -> dict[bytes, dict[int, int]]:
    """Return the epochs by topic id and partition number, both in ascending order."""
    result: dict[bytes, dict[int, int]] = {}
    for (topic_id, partition), epoch in owned.items():
        result.setdefault(topic_id, {})[partition] = epoch
    return {
        topic_id: {partition: result[topic_id][partition] for partition in sorted(result[topic_id])}
        for topic_id in sorted(result)
    }


def flat_epochs(owned: Mapping[bytes, Mapping[int, int]]) -> Owned:
    """Convert the result of `epochs_by_topic` back: return the epochs by partition."""
    return {
        (topic_id, partition): epoch
        for topic_id, epochs in owned.items()
        for partition, epoch in epochs.items()
    }
