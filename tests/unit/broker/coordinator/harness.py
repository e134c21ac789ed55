"""A coordinator on a virtual clock, with a log in memory and the real purgatory."""

import itertools
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kohort.broker.coordinator.coordinator import CoordinatorConfig, GroupCoordinator
from kohort.broker.coordinator.host import GroupHost
from kohort.broker.coordinator.offsets_log import OffsetsLog
from kohort.broker.coordinator.requests.classic import ClassicRequests
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.classic.unused_ids import UnusedIds
from kohort.groups.config import GroupConfig
from kohort.groups.events import EVENTS, Event
from kohort.groups.group import Group, NewMembership
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberMemory
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    JoinRequest,
    JoinResult,
    Now,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.waiting import next_slice

TOPIC_ID = bytes(range(16))
"""Id of the topic "t"."""

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


def report(doing: str, error: Exception) -> None:
    raise AssertionError(doing) from error


@dataclass
class Watcher:
    events: list[tuple[str, Event]] = field(default_factory=list)
    observed: Collection[type[Event]] = EVENTS

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        assert now.wall_ms > now.ms
        self.events.append((group_id, event))


class Harness:
    """One broker's groups."""

    def __init__(
        self,
        clock: VirtualClock,
        log: OffsetsLog,
        config: CoordinatorConfig | None = None,
        unused_ids: UnusedIds | None = None,
        others: Mapping[GroupKind, NewMembership] = MappingProxyType({}),
    ) -> None:
        """`others` are further kinds of groups."""
        self.clock = clock
        self.purgatory = Purgatory(report=report)
        self.shell = PurgatoryShell(self.purgatory, clock)
        self.watcher = Watcher()
        ids = itertools.count(1)
        config = config or CoordinatorConfig(GroupConfig())
        self.unused_ids = UnusedIds() if unused_ids is None else unused_ids
        self.member_memory = MemberMemory()
        unused_ids, member_memory = self.unused_ids, self.member_memory

        def new_classic(group: Group) -> ClassicMembership:
            data = ClassicData(
                group,
                new_member_id=lambda prefix: f"{prefix}-{next(ids)}",
                partition_count={"t": 3}.get,
                unused_ids=unused_ids,
                member_memory=member_memory,
            )
            return ClassicMembership(data)

        host = GroupHost(
            config,
            log=log,
            purgatory=self.purgatory,
            clock=clock,
            new_membership={GroupKind.CLASSIC: new_classic, **others},
            topic_id={"t": TOPIC_ID}.get,
            observers=(self.watcher,),
        )
        self.groups = GroupCoordinator(host)
        self.classic = ClassicRequests(host)

    def ask_join(
        self, group_id: str = "g", member_id: str = "", instance: str | None = None
    ) -> JoinResult | Deferred[JoinResult]:
        request = JoinRequest(
            member_id,
            instance,
            "c",
            "/127.0.0.1",
            10_000,
            60_000,
            "consumer",
            (("range", SUBSCRIPTION),),
        )
        return self.classic.join(group_id, request).map(lambda result: result)

    def join(
        self, group_id: str = "g", member_id: str = "", instance: str | None = None
    ) -> Deferred[JoinResult]:
        """A join that waits."""
        future = self.ask_join(group_id, member_id, instance)
        assert isinstance(future, Deferred)
        return future

    def ask_sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None
    ) -> SyncResult | Deferred[SyncResult]:
        request = SyncRequest(member_id, None, generation, assignments=assignments or {})
        result = self.classic.sync("g", request)
        return result.map(lambda made: made) if isinstance(result, Deferred) else result

    def ask_commit(
        self,
        offset: int = 42,
        *,
        group_id: str = "g",
        partition: int = 0,
        member_id: str = "",
        generation: int = -1,
        topic_id: bytes = ZERO_UUID,
    ) -> CommitResult | Deferred[CommitResult]:
        request = CommitRequest(
            (OffsetToCommit("t", partition, offset, topic_id=topic_id),),
            member_id=member_id,
            generation=generation,
        )
        ticket = self.groups.commit(group_id, request, may_answer_group_not_found=True)
        return ticket.map(lambda result: result)

    async def do_commit(self, offset: int = 42, **changes: Any) -> CommitResult:  # noqa: ANN401
        """A commit with its answer."""
        answer = self.ask_commit(offset, **changes)
        return await answer if isinstance(answer, Deferred) else answer

    def commit(self, offset: int = 42, **changes: Any) -> Deferred[CommitResult]:  # noqa: ANN401
        """A commit that waits for its append."""
        future = self.ask_commit(offset, **changes)
        assert isinstance(future, Deferred)
        return future

    def offset(self, group_id: str = "g", partition: int = 0) -> int | None:
        committed = self.groups.committed(group_id, "t", partition)
        return None if committed is None else committed.offset

    def state(self, group_id: str = "g") -> str | None:
        group = self.groups.host.group(group_id)
        return None if group is None else group.describe().state

    async def stable_static(self, *instances: str) -> dict[str, str]:
        """A stable group "g" of static members: instance -> member id; the first one leads."""
        joins = {name: self.join(instance=name) for name in instances}
        members = {name: (await join).member_id for name, join in joins.items()}
        leader, *others = members.values()
        shares = {member_id: member_id.encode() for member_id in members.values()}
        expected = SyncResult(ErrorCode.NONE, "consumer", "range", leader.encode())
        await next_slice()  # Until it is known that there are no more answers.
        assert self.ask_sync(leader, 1, shares) == expected
        for member_id in others:
            self.ask_sync(member_id, 1)
        assert self.state() == "Stable"
        return members


@asynccontextmanager
async def running(
    clock: VirtualClock,
    log: OffsetsLog | None = None,
    config: CoordinatorConfig | None = None,
    unused_ids: UnusedIds | None = None,
    others: Mapping[GroupKind, NewMembership] = MappingProxyType({}),
) -> AsyncIterator[Harness]:
    """Started at the beginning, closed at the end."""
    log = MemoryOffsetsLog() if log is None else log
    harness = Harness(clock, log, config, unused_ids, others)
    await harness.groups.host.start()
    try:
        yield harness
    finally:
        await harness.groups.host.close()
        harness.shell.close()
