"""Rebalances whose process was killed before the history had their record."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kohort.broker.coordinator.coordinator import CoordinatorConfig
from kohort.broker.history.history import RebalanceHistory
from kohort.broker.history.restoring import RecordedGenerations
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.classic.stored_cause import CHARS, StoredCause, decode_cause, encode_cause
from kohort.groups.config import GroupConfig
from kohort.groups.events import MemberRef, Trigger, TriggerKind
from kohort.groups.history.entry import Entry
from kohort.groups.history.model import RebalanceOutcome, RebalanceRecord
from kohort.groups.reasons import ReasonSource, StatedReason
from kohort.groups.records import GroupRecord, StoredMember
from kohort.groups.requests import JoinResult
from kohort.protocol.join_reason import JoinReason
from kohort.testing.kit.groups import history_records
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness
from tests.unit.broker.history.test_history import MemoryHistoryLog

MEMBER = MemberRef("m", "i", "c", "/h")
STATED = StatedReason(JoinReason.UPGRADE, ReasonSource.TAG, 3, "new version")
TRIGGER = Trigger(TriggerKind.FORCED_BY_REASON, MEMBER, was_leader=True, reason=STATED)
CONFIG = CoordinatorConfig(GroupConfig(initial_rebalance_delay_ms=0))


class Process:
    """A broker's groups and their history."""

    def __init__(
        self, clock: VirtualClock, groups_log: MemoryOffsetsLog, history_log: MemoryHistoryLog
    ) -> None:
        self.history = RebalanceHistory(clock=clock)
        self.harness = Harness(clock, groups_log, CONFIG)
        self.harness.groups.host.add_observer(self.history)
        self.history_log = history_log

    async def start(self) -> None:
        await self.history.start(self.history_log)
        await self.harness.groups.host.start()
        self.history.end_recovery()
        await asyncio.sleep(0.1)

    def kill(self) -> None:
        """Nothing more reaches the history."""
        assert self.history._worker is not None
        self.history._worker.cancel()

    def records(self) -> list[RebalanceRecord]:
        records = history_records(self.history, "g")
        return [record for record in records if isinstance(record, RebalanceRecord)]


class Machine:
    """What outlives a process."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.groups_log = MemoryOffsetsLog()
        self.history_log = MemoryHistoryLog()

    @asynccontextmanager
    async def process(self) -> AsyncIterator[Process]:
        process = Process(self.clock, self.groups_log, self.history_log)
        await process.start()
        try:
            yield process
        finally:
            process.kill()
            await process.harness.groups.host.close()
            process.harness.shell.close()


async def join(harness: Harness, member_id: str = "") -> JoinResult:
    """One member joins, or joins again, which rebalances since it leads."""
    answer = harness.ask_join(instance=None if member_id else "i", member_id=member_id)
    return await answer if isinstance(answer, Deferred) else answer


def sync(harness: Harness, joined: JoinResult) -> None:
    harness.ask_sync(joined.member_id, joined.generation, {joined.member_id: b"share"})


def outline(records: list[RebalanceRecord]) -> list[tuple[int, int | None, str, bool]]:
    return [(one.sequence, one.generation, one.outcome, one.recovered) for one in records]


@virtual
async def test_a_generation_without_a_record_gets_one_from_the_next_start(
    clock: VirtualClock,
) -> None:
    machine = Machine(clock)
    async with machine.process() as process:
        # The follower never comes for its assignment, so the record is not complete.
        joins = [process.harness.join(instance=name) for name in ("one", "two")]
        joined = await joins[0]
        leader, generation = joined.member_id, joined.generation
        sync(process.harness, joined)
        process.kill()
        known = {entry.generation for entry in machine.history_log.entries}
        assert generation not in known
    for _ in range(2):
        async with machine.process() as process:
            record = process.records()[-1]
            assert (record.generation, record.outcome) == (generation, RebalanceOutcome.STABLE)
            assert record.recovered
            assert record.trigger.kind is TriggerKind.STATIC_ADDED
            assert record.leader == leader
            assert leader in {member.member_id for member in record.members}
            generations = [entry.generation for entry in machine.history_log.entries]
            assert generations.count(generation) == 1


@virtual
async def test_several_generations_are_recovered_in_their_order(clock: VirtualClock) -> None:
    machine = Machine(clock)
    async with machine.process() as process:
        process.kill()
        member_id = ""
        for _ in range(3):
            joined = await join(process.harness, member_id)
            sync(process.harness, joined)
            member_id = joined.member_id
    assert machine.history_log.entries == []
    async with machine.process() as process:
        stable = RebalanceOutcome.STABLE
        expected = [(number, number, stable, True) for number in (1, 2, 3)]
        assert outline(process.records()) == expected
        await process.history.close()
    async with machine.process() as process:
        assert outline(process.records()) == expected


@virtual
async def test_one_that_was_written_down_as_running_is_completed(clock: VirtualClock) -> None:
    machine = Machine(clock)
    async with machine.process() as process:
        joined = await join(process.harness)
        await asyncio.sleep(8)
        assert [entry.kind for entry in machine.history_log.entries] == ["running"]
        process.kill()
        sync(process.harness, joined)
    async with machine.process() as process:
        assert outline(process.records()) == [(1, 1, RebalanceOutcome.STABLE, True)]
        # What was known while it ran is still there.
        assert process.records()[0].timeline.join_phase_ms is not None
    assert [entry.kind for entry in machine.history_log.entries] == ["running", "rebalance"]


def stored(generation: int, at_ms: int, *, begun: bytes | None = None) -> GroupRecord:
    member = StoredMember("m", "i", "c", "/h", 1, 1, b"", b"")
    begun = begun or encode_cause(TRIGGER, "Stable", generation - 1, at_ms - 1)
    return GroupRecord("g", "consumer", generation, "range", "m", at_ms, (member,), None, begun)


def recorded(*entries: tuple[int, int], is_whole: bool) -> RecordedGenerations:
    """Generations recorded by entries of (generation, time at which it was written)."""
    found = RecordedGenerations(is_whole=is_whole)
    for generation, wall_ms in entries:
        found.add(Entry("g", "rebalance", generation, b"", wall_ms, generation))
    return found


@pytest.mark.parametrize(
    ("known", "generation", "at_ms", "is_missing"),
    [
        (recorded(is_whole=True), 1, 10, True),
        (recorded((1, 10), is_whole=True), 1, 10, False),
        (recorded((1, 10), is_whole=True), 2, 20, True),
        # The group was deleted meanwhile, and counts from the start.
        (recorded((1, 10), (2, 20), is_whole=True), 1, 30, True),
        # Older than what was read of the history.
        (recorded((7, 10), is_whole=False), 1, 9, False),
        (recorded((7, 10), is_whole=False), 8, 11, True),
        (recorded(is_whole=False), 1, 10, False),
    ],
)
def test_what_is_missing_is_told_by_generation_and_time(
    known: RecordedGenerations, generation: int, at_ms: int, *, is_missing: bool
) -> None:
    assert bool(known.missing([stored(generation, at_ms)])) == is_missing


def test_generations_that_do_not_say_how_they_began_are_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    of_kafka = GroupRecord("g", "consumer", 1, "range", "m", 10, ())
    assert recorded(is_whole=True).missing([of_kafka, stored(2, 10, begun=b"[1]")]) == []
    assert "none can be created" in caplog.text


def test_how_a_rebalance_began_is_read_as_it_was_written() -> None:
    begun = decode_cause(encode_cause(TRIGGER, "Stable", 4, 99))
    member = ("m", "i", "c", "/h")
    assert begun == StoredCause(
        *("Stable", 4, 99, TRIGGER.kind.value, member, True),
        *("UPGRADE", "tag", 3, "new version"),
    )
    nobody = Trigger(TriggerKind.OVER_CAPACITY)
    assert decode_cause(encode_cause(nobody, "Empty", 0, 9)).member is None


def test_long_names_are_cut() -> None:
    long = Trigger(TriggerKind.MEMBER_ADDED, MemberRef("m" * 32_000, None, "c" * 32_000, "/h"))
    assert len(encode_cause(long, "Empty", 0, 9)) < 3 * CHARS


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"[]", b"1", b'["a",1,2,"no kind",null,0]'])
def test_what_is_no_beginning_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_cause(data)
