"""The present state of a group, as polls alone show it."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from kohort.groups.classic.states import ClassicState
from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
from kohort.groups.kinds import EMPTY, GroupKind
from kohort.groups.records import GroupRecord
from kohort.watch.core.followed import ref

_STABLE = ClassicState.STABLE.value


class PolledView(NamedTuple):
    """Implements `View`. It never changes."""

    record: GroupRecord
    kind: GroupKind
    state: str
    since_ms: int
    """When the state was first seen."""

    def describe(self) -> GroupDescription:
        record = self.record
        return GroupDescription(
            record.group_id,
            self.kind,
            self.state,
            record.protocol_type,
            record.generation,
            record.protocol_name,
            None,
            self.since_ms,
            len(record.members),
            is_stable=self.state == _STABLE,
            is_rebalancing=self.state not in {_STABLE, EMPTY},
        )

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        protocol = self.record.protocol_name
        return [
            DescribedMember(
                *ref(member)[:4], 0, 0, (protocol,) if protocol else (), b"", member.assignment
            )
            for member in islice(self.record.members, count_max)
        ]

    def describe_waiting(self) -> WaitingFor | None:
        if self.state != ClassicState.PREPARING_REBALANCE.value:
            return None
        members = tuple([ref(member) for member in self.record.members])
        return WaitingFor("join", self.since_ms, None, members, is_any=True)

    def gauges(self) -> Mapping[str, int]:
        return {}
