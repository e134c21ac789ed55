"""Groups that lie where Kafka would not look for them are moved, whatever happens meanwhile."""

import logging
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from kohort.broker.coordinator.loading import LoadedGroups, load_groups
from kohort.broker.coordinator.log.offsets_log import OffsetsLog, Stored, StoredRecord
from kohort.broker.coordinator.log.relocation import former_partition_of
from kohort.broker.coordinator.log.topic_log import TopicOffsetsLog
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.groups.records import (
    DurableRecord,
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
)
from kohort.groups.requests import CommittedOffset
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.lasting_metadata import LastingMetadata
from kohort.testing.simulated_filesystem import Operation, SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.running_topics import running_topics
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness, running

COUNT: Final = 3
"""Partitions."""

FORMERLY, NOW = 1_000, 2_000


def offset(group_id: str, position: int, topic: str = "t") -> OffsetRecord:
    return OffsetRecord(group_id, topic, 0, CommittedOffset(position, -1, "", 99))


def group(group_id: str, generation: int) -> GroupRecord:
    return GroupRecord(group_id, "consumer", generation, None, None, 99, ())


def home(group_id: str) -> int:
    return partition_of(group_id, COUNT)


def former(group_id: str) -> int:
    return former_partition_of(group_id, COUNT)


NAMES: Final = [f"group-{number}" for number in range(200)]
MOVED: Final = [name for name in NAMES if former(name) != home(name)][:12]
STAYING: Final = [name for name in NAMES if former(name) == home(name)][:3]
ALL: Final[dict[str, list[DurableRecord]]] = {
    name: [group(name, 3), offset(name, 7), offset(name, 8, "u")] for name in [*MOVED, *STAYING]
}
ONE: Final = MOVED[0]


def by_key(records: Sequence[DurableRecord]) -> list[DurableRecord]:
    return sorted(records, key=repr)


def found(loaded: LoadedGroups) -> dict[str, list[DurableRecord]]:
    return {name: by_key(records) for name, records in loaded.records_by_group.items()}


def expected(groups: dict[str, list[DurableRecord]]) -> dict[str, list[DurableRecord]]:
    return {name: by_key(records) for name, records in groups.items()}


async def done(append: Awaitable[None] | None) -> None:
    if append is not None:
        await append


async def load(log: OffsetsLog) -> LoadedGroups:
    return await load_groups(log, VirtualClock())


async def write_formerly(log: OffsetsLog) -> None:
    for name, records in ALL.items():
        await done(log.append(former(name), records, wall_ms=FORMERLY))


def misplaced(log: OffsetsLog) -> list[StoredRecord]:
    """Last records of keys, in partitions that are not their groups', that are no tombstones."""
    names = {name.encode(): name for name in ALL}
    left: list[StoredRecord] = []
    for partition in range(COUNT):
        records = (entry for entry in log.read(partition) if isinstance(entry, StoredRecord))
        latest = {record.key: record for record in records}
        for key, record in latest.items():
            name = names[key[4 : 4 + key[3]]]
            if record.value is not None and home(name) != partition:
                left.append(record)
    return left


async def test_what_lies_in_the_former_partition_is_found_and_moved() -> None:
    log = MemoryOffsetsLog(COUNT)
    await write_formerly(log)

    loaded = await load(log)

    assert found(loaded) == expected(ALL)
    assert not loaded.refused_groups
    assert misplaced(log) == []


async def test_a_start_that_has_nothing_to_move_appends_nothing_and_reads_once() -> None:
    class Counting(MemoryOffsetsLog):
        reads = 0

        def read(self, partition: int) -> Iterator[Stored]:
            self.reads += 1
            return super().read(partition)

    log = Counting(COUNT)
    await write_formerly(log)
    await load(log)
    log.reads = log.append_count = 0

    loaded = await load(log)

    assert found(loaded) == expected(ALL)
    assert (log.append_count, log.reads) == (0, COUNT)


@pytest.mark.parametrize(
    ("in_former", "in_own", "outcome"),
    [
        ((offset(ONE, 1), FORMERLY), (offset(ONE, 2), NOW), [offset(ONE, 2)]),
        ((offset(ONE, 1), NOW), (offset(ONE, 2), FORMERLY), [offset(ONE, 1)]),
        ((group(ONE, 5), NOW), (group(ONE, 4), FORMERLY), [group(ONE, 5)]),
        # A copy that an earlier start has made, from before it was killed.
        ((offset(ONE, 1), FORMERLY), (offset(ONE, 1), FORMERLY), [offset(ONE, 1)]),
        ((offset(ONE, 1), FORMERLY), (OffsetTombstone(ONE, "t", 0), NOW), []),
        ((group(ONE, 5), FORMERLY), (GroupTombstone(ONE), NOW), []),
        ((offset(ONE, 1), NOW), (OffsetTombstone(ONE, "t", 0), FORMERLY), [offset(ONE, 1)]),
    ],
)
async def test_of_two_places_the_newer_record_holds(
    in_former: tuple[DurableRecord, int],
    in_own: tuple[DurableRecord, int],
    outcome: list[DurableRecord],
) -> None:
    log = MemoryOffsetsLog(COUNT)
    await done(log.append(former(ONE), [in_former[0]], wall_ms=in_former[1]))
    await done(log.append(home(ONE), [in_own[0]], wall_ms=in_own[1]))

    for _ in range(2):
        loaded = await load(log)
        assert loaded.records_by_group.get(ONE, []) == outcome
        assert misplaced(log) == []


async def test_within_a_partition_the_last_record_holds_whatever_the_clock_said() -> None:
    log = MemoryOffsetsLog(COUNT)
    for position, wall_ms in ((1, NOW), (2, FORMERLY)):
        await done(log.append(former(ONE), [offset(ONE, position)], wall_ms=wall_ms))
    assert (await load(log)).records_by_group == {ONE: [offset(ONE, 2)]}


async def test_what_is_committed_after_the_move_holds_although_the_clock_went_back() -> None:
    log = MemoryOffsetsLog(COUNT)
    await done(log.append(former(ONE), [offset(ONE, 1)], wall_ms=NOW))
    await load(log)
    await done(log.append(home(ONE), [offset(ONE, 500)], wall_ms=FORMERLY))
    assert (await load(log)).records_by_group == {ONE: [offset(ONE, 500)]}


class Failing(MemoryOffsetsLog):
    """One of its partitions takes nothing, or cannot be forced to the disk."""

    broken: int | None = None
    unforced: int | None = None
    unread: int | None = None

    def read(self, partition: int) -> Iterator[Stored]:
        if partition == self.unread:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
        return super().read(partition)

    def append_stored(
        self, partition: int, records: Sequence[StoredRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        if partition == self.broken:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return super().append_stored(partition, records, wall_ms=wall_ms)

    async def force(self, partition: int) -> None:
        if partition == self.unforced:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.parametrize("partition", [former(ONE), home(ONE)])
@pytest.mark.parametrize("trouble", ["broken", "unforced", "unread"])
async def test_groups_that_cannot_be_moved_are_refused_until_they_can(
    partition: int, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = Failing(COUNT)
    await write_formerly(log)
    setattr(log, trouble, partition)
    with caplog.at_level(logging.ERROR):
        loaded = await load(log)
    served = set(loaded.records_by_group)
    assert found(loaded) == expected({name: ALL[name] for name in served})
    touched = {
        name
        for name in ALL
        if partition in {home(name), former(name)}
        and (name in MOVED or trouble == "unread")
        and not (trouble == "unforced" and partition == former(name) != home(name))
    }
    assert set(ALL) - served == touched
    setattr(log, trouble, None)
    assert found(await load(log)) == expected(ALL)


@virtual
async def test_requests_of_a_refused_group_are_told_to_come_again(clock: VirtualClock) -> None:
    log = Failing(COUNT)
    await write_formerly(log)
    log.broken = home(ONE)
    async with running(clock, log) as h:
        await expect_refused(h)


@virtual
async def test_a_group_is_not_absent_while_its_former_partition_is_unread(
    clock: VirtualClock,
) -> None:
    log = Failing(COUNT)
    await write_formerly(log)
    log.unread = former(ONE)
    async with running(clock, log) as h:
        await expect_refused(h)
        served = next(name for name in ALL if former(name) != log.unread != home(name))
        assert h.groups.read_error(served) is ErrorCode.NONE


@virtual
async def test_a_group_that_has_moved_outlives_its_former_partition(clock: VirtualClock) -> None:
    log = Failing(COUNT)
    await write_formerly(log)
    await load(log)
    log.unread = former(ONE)
    async with running(clock, log) as h:
        assert h.groups.read_error(ONE) is ErrorCode.NONE
        assert h.offset(ONE) == 7


async def expect_refused(h: Harness) -> None:
    assert h.groups.read_error(ONE) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.classic.heartbeat(ONE, "m", None, 3) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError) as raised:
        await h.do_commit(group_id=ONE)
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


# Cut short, on a disk.


class Camera(SimulatedFileSystem):
    """Remembers what it was like before the nth operation that changes a log."""

    def __init__(self, files: SimulatedFileSystem, picture_at: int) -> None:
        super().__init__()
        self.__dict__.update(files.copy().__dict__)
        self.count = 0
        self.picture_at = picture_at
        self.picture: SimulatedFileSystem | None = None

    def check(self, operation: Operation, path: str) -> None:
        super().check(operation, path)
        if operation != "pread" and path.endswith(".log"):
            self.count += 1
            if self.count == self.picture_at:
                self.picture = self.copy()


@asynccontextmanager
async def a_log(
    files: SimulatedFileSystem, store: MetadataStore, *, stop_cleanly: bool = True
) -> AsyncIterator[TopicOffsetsLog]:
    async with running_topics(
        Path("/data"),
        f"offsets.topic.num.partitions={COUNT}",
        files=files,
        store=store,
        executor=InlineExecutor(),
        stop_cleanly=stop_cleanly,
    ) as topics:
        yield TopicOffsetsLog(topics, topics.settings.config)


async def operations_of_a_move(files: SimulatedFileSystem, store: MetadataStore) -> int:
    camera = Camera(files, 0)
    async with a_log(camera, store, stop_cleanly=False) as log:
        await load(log)
    return camera.count


def lose_power(files: SimulatedFileSystem, kept: int) -> None:
    """The kernel has written one partition back by itself, and nothing else that was not forced."""
    files.sync_file(f"/data/{CONSUMER_OFFSETS}-{kept}/00000000000000000000.log")
    files.lose_power(lambda _: 0)


@pytest.mark.parametrize("kept", [None, 0, COUNT - 1])
async def test_a_move_that_is_cut_short_anywhere_loses_nothing(kept: int | None) -> None:
    """Twice in a row, at each operation; by a kill, or by a loss of power."""
    files, store = SimulatedFileSystem(), LastingMetadata()
    async with a_log(files, store) as log:
        await write_formerly(log)
    operations = await operations_of_a_move(files, store)
    assert operations >= COUNT
    for place in range(1, operations + 2):
        picture = files
        for picture_at in (place, operations - place):
            camera = Camera(picture, picture_at)
            async with a_log(camera, store, stop_cleanly=False) as log:
                assert found(await load(log)) == expected(ALL), f"at {place}"
            picture = camera.picture or camera.copy()
            if kept is not None:
                lose_power(picture, kept)
        async with a_log(picture, store) as log:
            assert found(await load(log)) == expected(ALL), f"at {place}"
            assert misplaced(log) == []
