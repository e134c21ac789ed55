"""Heartbeats of consumer groups that arrive together share an append, and its outcome."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.requests.consumer import ConsumerRequests
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.consumer.data import ConsumerSettings
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberAccount
from kohort.groups.member_sessions import HeartbeatResult
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.groups.consumer_group import Topics
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.support.waiting import turns
from tests.unit.broker.coordinator.faults import ShortLog, raising
from tests.unit.broker.coordinator.harness import running

MEMBERS = 120
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Members:
    """The members of one group, its host and its log."""

    def __init__(self, requests: ConsumerRequests, group: Callable[[], Group | None]) -> None:
        self._requests = requests
        self._group = group

    def ask(
        self, member_id: str, epoch: int = 0, topics: tuple[str, ...] = ("t",)
    ) -> Deferred[HeartbeatResult]:
        joins = epoch == 0
        request = HeartbeatRequest(
            member_id,
            epoch,
            rebalance_timeout_ms=10_000 if joins else -1,
            topic_names=topics if joins else None,
            owned=frozenset() if joins else None,
        )
        ticket = self._requests.heartbeat("g", request, lambda _: True)
        assert isinstance(ticket, Deferred)
        answer = ticket.map(lambda result: result)
        assert isinstance(answer, Deferred)
        return answer

    @property
    def count(self) -> int:
        group = self._group()
        return 0 if group is None else group.describe().member_count


@asynccontextmanager
async def members_of(clock: VirtualClock, log: MemoryOffsetsLog) -> AsyncIterator[Members]:
    topics = Topics()
    topics.change("t", MEMBERS)

    def consumer(group: Group) -> ConsumerMembership:
        return ConsumerMembership(
            group,
            topics,
            lambda _: ConsumerSettings(max_size=1_000),
            MemberAccount(),
            new_classic=lambda _: pytest.fail("there are no classic members"),
            new_member_id=str,
        )

    async with running(clock, log, others={GroupKind.CONSUMER: consumer}) as h:
        requests = ConsumerRequests(h.groups.host, is_enabled=True, assignors=("uniform",))
        yield Members(requests, lambda: h.groups.host.group("g"))


@virtual
async def test_members_that_join_together_share_few_appends(clock: VirtualClock) -> None:
    log = MemoryOffsetsLog()
    async with members_of(clock, log) as members:
        await members.ask("first")
        began = log.append_count
        joins = [members.ask(f"m{number}") for number in range(MEMBERS)]
        results = await asyncio.gather(*joins)
        assert [result.member_id for result in results] == [f"m{n}" for n in range(MEMBERS)]
        assert {result.error for result in results} == {NO_ERROR}
        assert members.count == MEMBERS + 1
        assert log.append_count - began < MEMBERS / 10


@virtual
async def test_members_are_answered_when_the_shared_append_is_durable(clock: VirtualClock) -> None:
    log = MemoryOffsetsLog()
    async with members_of(clock, log) as members:
        await members.ask("first")
        log.hold()
        joins = [members.ask(name) for name in "abc"]
        await turns()
        assert not any(join.is_done for join in joins)
        assert members.count == 1
        log.release()
        assert {result.error for result in await asyncio.gather(*joins)} == {NO_ERROR}
        assert members.count == 4


@virtual
async def test_a_member_whose_records_are_refused_fails_alone_at_last(clock: VirtualClock) -> None:
    log = ShortLog()
    async with members_of(clock, log) as members:
        await members.ask("first")
        log.bytes_max = 500
        long = tuple(f"topic-{number}" for number in range(50))
        names = "abc"

        async def join_all() -> list[ErrorCode]:
            asked = [members.ask("long", topics=long), *map(members.ask, names)]
            return [result.error for result in await asyncio.gather(*asked)]

        assert set(await join_all()) == {UNAVAILABLE}
        assert await join_all() == [ErrorCode.UNKNOWN_SERVER_ERROR, *[NO_ERROR] * len(names)]


@virtual
async def test_a_step_that_raises_is_answered_alone_with_an_unknown_error(
    clock: VirtualClock,
) -> None:
    async with running(clock) as h:
        await h.do_commit()
        tickets: list[Deferred[object]] = [Deferred() for _ in range(3)]
        for number, ticket in enumerate(tickets):
            step = raising if number == 1 else lambda *_: None
            command = Command(step, ticket, is_exclusive=True, is_gathered=True, shares_append=True)
            h.groups.host.submit("g", command)
        errors: list[ErrorCode] = []
        for ticket in tickets:
            with pytest.raises(KafkaError) as raised:
                await ticket
            errors.append(raised.value.code)
        assert errors == [UNAVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR, UNAVAILABLE]


@virtual
async def test_a_heartbeat_too_large_to_share_an_append_is_answered(clock: VirtualClock) -> None:
    async with members_of(clock, MemoryOffsetsLog()) as members:
        large = "m" * 2_000
        assert (await members.ask(large)).error == NO_ERROR
        assert (await members.ask("n")).error == NO_ERROR
        left = members.ask(large, -1)
        await turns(20)
        assert left.is_done
        assert members.count == 1
