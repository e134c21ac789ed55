"""What is read back from the log, and what is not."""

import logging
from collections.abc import Iterator, Sequence

import pytest

from kohort.broker.coordinator.loading import load_groups, read_group
from kohort.broker.coordinator.offsets_log import Stored, StoredRecord
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.runtime.slices import SLICE_MS
from kohort.groups.records import (
    DurableRecord,
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
)
from kohort.groups.requests import CommittedOffset
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.measures.busy_clock import BusyClock
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.waiting import counted_turns


def offset(group_id: str, position: int, topic: str = "t") -> OffsetRecord:
    return OffsetRecord(group_id, topic, 0, CommittedOffset(position, -1, "", 99))


def group(group_id: str, generation: int) -> GroupRecord:
    return GroupRecord(group_id, "consumer", generation, None, None, 99, ())


class Log(MemoryOffsetsLog):
    """With records that no group of ours has written."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: dict[int, list[StoredRecord]] = {}
        self.unreadable: set[int] = set()

    def write(self, *records: DurableRecord) -> None:
        for record in records:
            self.append(partition_of(record.group_id, 50), [record], wall_ms=99)

    def read(self, partition: int) -> Iterator[Stored]:
        yield from self.foreign.get(partition, ())
        yield from super().read(partition)
        if partition in self.unreadable:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE)


async def loaded(log: Log) -> dict[str, list[DurableRecord]]:
    return (await load_groups(log, VirtualClock())).records_by_group


async def test_of_each_key_the_last_record_counts() -> None:
    log = Log()
    log.write(group("g", 1), offset("g", 1), group("g", 2), offset("g", 2), offset("h", 7))
    assert await loaded(log) == {"g": [group("g", 2), offset("g", 2)], "h": [offset("h", 7)]}


async def test_what_was_deleted_is_gone() -> None:
    log = Log()
    log.write(group("g", 1), offset("g", 1), offset("g", 1, "u"))
    log.write(OffsetTombstone("g", "t", 0), GroupTombstone("g"))
    assert await loaded(log) == {"g": [offset("g", 1, "u")]}


async def test_what_was_deleted_and_made_again_is_there() -> None:
    log = Log()
    log.write(group("g", 5), GroupTombstone("g"), group("g", 0))
    assert await loaded(log) == {"g": [group("g", 0)]}


@pytest.mark.parametrize(
    "records",
    [
        # A type of group that we do not have (KIP-848), and keys and values that do not parse.
        [StoredRecord(b"\0\3\0\1g", b"\0\0", (), 99)],
        [StoredRecord(b"\0\2\0\5g", b"\0\0", (), 99)],
        [StoredRecord(b"\0\2\0\1x", b"\0\3\0", (), 99)],
        [StoredRecord(b"", None, (), 99)],
    ],
)
async def test_a_record_that_is_not_understood_is_left_out(
    records: Sequence[StoredRecord],
) -> None:
    log = Log()
    log.write(offset("g", 1))
    log.foreign[partition_of("g", 50)] = list(records)
    assert await loaded(log) == {"g": [offset("g", 1)]}


async def test_a_partition_that_cannot_be_read_to_its_end_gives_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    log.write(offset("g", 1), offset("payments", 1))
    log.unreadable.add(partition_of("g", 50))
    with caplog.at_level(logging.ERROR):
        found = await load_groups(log, VirtualClock())
    assert found.records_by_group == {"payments": [offset("payments", 1)]}
    assert found.unreadable_partitions == {partition_of("g", 50)}
    assert "cannot be read" in caplog.text


async def test_records_in_the_partition_of_other_groups_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    log.write(offset("g", 1))
    for partition in range(2):
        log.append(partition, [offset("g", 2), offset("payments", 1)], wall_ms=99)
    assert not {partition_of("g", 50), partition_of("payments", 50)} & {0, 1}
    assert await loaded(log) == {"g": [offset("g", 1)]}
    assert "2 groups" in caplog.text


async def test_the_time_of_each_partition_that_has_records_is_told() -> None:
    clock = VirtualClock()

    class SlowLog(Log):
        def read(self, partition: int) -> Iterator[Stored]:
            clock.advance(7)
            return super().read(partition)

    log = SlowLog()
    log.write(offset("g", 1), offset("payments", 1))
    assert (await load_groups(log, clock)).load_times_ms == (7, 7)


async def test_one_group_is_read_without_its_neighbours() -> None:
    log = Log()
    neighbour = next(f"n{i}" for i in range(1_000) if partition_of(f"n{i}", 50) == 3)
    assert partition_of("g", 50) == 3
    log.write(group("g", 1), group(neighbour, 9), offset("g", 4), group("g", 2))
    expected: list[DurableRecord] = [group("g", 2), offset("g", 4)]
    assert read_group(log, "g") == expected
    assert read_group(log, "nobody") == []


@pytest.mark.parametrize("group_ms", [0, SLICE_MS])
async def test_probes_are_answered_between_large_groups(group_ms: int) -> None:
    log = Log()
    for number in range(20):
        log.write(group(f"g{number}", 1))
    async with counted_turns() as turns:
        assert len((await load_groups(log, BusyClock(group_ms))).records_by_group) == 20
    assert (turns.count >= 20) == (group_ms > 0)
