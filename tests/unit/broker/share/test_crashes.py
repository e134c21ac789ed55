"""What a member sees after the broker's process was killed at any moment."""

import asyncio
import errno

import pytest

from kohort.broker.share.maintenance import UNLOADED_AFTER_MS
from kohort.groups.share.state_log import SharePartitionKey
from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock
from tests.support.share.running_share import Acquired, RunningShare, running_share
from tests.support.transactions.running_transactions import Disk
from tests.support.virtual_time import virtual

ACCEPT, RELEASE = 1, 2
FLUSHED = "log.flush.interval.messages=1"


@virtual
async def test_a_group_that_begins_at_the_end_misses_nothing_before_its_first_fetch(
    clock: VirtualClock,
) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk, policy="latest", stop_cleanly=False) as broker:
        broker.produce(3)
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(0, 2, 1)]


@pytest.mark.parametrize("policy", ["latest", "earliest", "by_duration:PT1H"])
@pytest.mark.parametrize("settings", [(), (FLUSHED,)], ids=["unflushed", "flushed"])
@virtual
async def test_records_that_nobody_has_acknowledged_are_delivered_again(
    clock: VirtualClock, policy: str, settings: tuple[str, ...]
) -> None:
    disk = Disk()
    async with running_share(
        clock, *settings, disk=disk, policy=policy, stop_cleanly=False
    ) as broker:
        broker.produce(3)
        assert await broker.acquire() == [Acquired(0, 2, 1)]
    async with running_share(clock, disk=disk) as broker:
        # A delivery that was not recorded is not counted.
        assert await broker.acquire() == [Acquired(0, 2, 1)]


@virtual
async def test_a_lock_that_ended_unrecorded_does_not_count(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk, stop_cleanly=False) as broker:
        broker.produce(1)
        await broker.acquire()
        clock.advance(30_000)
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(0, 0, 1)]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("settings", [(), (FLUSHED,)], ids=["unflushed", "flushed"])
@virtual
async def test_an_answered_acknowledgement_is_kept(
    clock: VirtualClock, isolation: str, settings: tuple[str, ...]
) -> None:
    disk = Disk()
    async with running_share(
        clock, *settings, disk=disk, stop_cleanly=False, share_isolation_level=isolation
    ) as broker:
        broker.produce(4)
        await broker.acquire()
        assert await broker.accept(0, 1) is ErrorCode.NONE
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(2, 3, 1)]


@virtual
async def test_holes_in_the_acknowledged_come_first(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk, stop_cleanly=False) as broker:
        broker.produce(10)
        broker.produce(2)
        await broker.acquire(max_records=10)
        await broker.acknowledge([(2, 3, ACCEPT), (6, 7, RELEASE)])
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [
            Acquired(0, 1, 1),
            Acquired(4, 5, 1),
            Acquired(6, 7, 2),
            Acquired(8, 11, 1),
        ]


@virtual
async def test_the_last_delivery_is_repeated_if_its_end_was_not_recorded(
    clock: VirtualClock,
) -> None:
    disk = Disk()
    async with running_share(
        clock, disk=disk, stop_cleanly=False, share_delivery_count_limit="2"
    ) as broker:
        broker.produce(1)
        await broker.acquire()
        await broker.acknowledge([(0, 0, RELEASE)])
        assert await broker.acquire() == [Acquired(0, 0, 2)]
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(0, 0, 2)]
        await broker.acknowledge([(0, 0, RELEASE)])
        assert await broker.acquire() == []


@virtual
async def test_aborted_records_are_found_again(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(
        clock, disk=disk, stop_cleanly=False, share_isolation_level="read_committed"
    ) as broker:
        broker.produce(2)
        broker.produce(2, producer_id=7, producer_epoch=0, is_transactional=True)
        broker.abort(7)
        broker.produce(1)
        assert await broker.acquire() == [Acquired(0, 1, 1), Acquired(4, 5, 1)]
        await broker.accept(0, 1)
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(4, 5, 1)]


@virtual
async def test_a_partition_without_state_begins_by_the_reset_policy(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(
        clock, disk=disk, policy="latest", stop_cleanly=False, initialized=[1]
    ) as broker:
        broker.produce(2)
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == []
        broker.produce(1)
        assert await broker.acquire() == [Acquired(2, 2, 1)]


@virtual
async def test_state_that_no_group_has_is_deleted(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk, stop_cleanly=False) as broker:
        broker.produce(2)
        await broker.acquire()
        await broker.accept(0, 1)
    async with running_share(clock, disk=disk, initialized=[1]) as broker:
        response = await broker.fetch()
        assert response.responses[0].partitions[0].error_code
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(0, 1, 1)]


@virtual
async def test_forgotten_state_does_not_return(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk) as broker:
        broker.produce(2)
        await broker.acquire()
        await broker.accept(0, 1)
        broker.forget(0)
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(0, 1, 1)]


@virtual
async def test_a_pruned_log_has_the_whole_state(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(
        clock,
        "share.coordinator.snapshot.update.records.per.snapshot=3",
        "share.coordinator.state.topic.segment.bytes=1048576",
        disk=disk,
        stop_cleanly=False,
    ) as broker:
        for number in range(10):
            broker.produce(1)
            await broker.acquire()
            await broker.accept(number, number)
        broker.produce(1)
        await broker.acquire()
        broker.delivery.maintenance.prune()
        share = broker.delivery.partitions.find_loaded("g", broker.topic_id, 0)
        assert share is not None
        topic = broker.topics.get("__share_group_state")
        assert topic is not None
        assert topic.partitions[share.state_partition].log.log_start_offset > 0
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(10, 10, 1)]


@virtual
async def test_the_log_of_forgotten_state_is_pruned(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk, stop_cleanly=False) as broker:
        broker.forget(0, 1)
        await asyncio.sleep(1)
        broker.delivery.maintenance.prune()
        topic = broker.topics.get("__share_group_state")
        assert topic is not None
        logs = [partition.log for partition in topic.partitions]
        assert any(log.log_end_offset for log in logs)
        assert all(log.log_start_offset == log.log_end_offset for log in logs)
    async with running_share(clock, disk=disk) as broker:
        broker.produce(1)
        assert await broker.acquire() == [Acquired(0, 0, 1)]


def is_loaded(broker: RunningShare) -> bool:
    share = broker.delivery.partitions.find_loaded("g", broker.topic_id, 0)
    assert share is not None
    return share.window is not None


@virtual
async def test_an_unloaded_window_continues(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk) as broker:
        broker.produce(10)
        await broker.acquire()
        await broker.acknowledge([(0, 1, ACCEPT), (4, 9, RELEASE)])
        clock.advance(UNLOADED_AFTER_MS)
        await broker.delivery.maintenance.unload()
        assert is_loaded(broker)  # Records are acquired.
        await broker.acknowledge([(2, 3, RELEASE)])
        clock.advance(UNLOADED_AFTER_MS)
        await broker.delivery.maintenance.unload()
        assert not is_loaded(broker)
        assert await broker.acquire() == [Acquired(2, 9, 2)]
        await broker.accept(2, 3)
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(4, 9, 2)]


@virtual
async def test_what_a_full_disk_refuses_has_not_happened(clock: VirtualClock) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk, stop_cleanly=False) as broker:
        broker.produce(4)
        await broker.acquire()
        assert await broker.accept(0, 0) is ErrorCode.NONE
        share = broker.delivery.partitions.find_loaded("g", broker.topic_id, 0)
        assert share is not None
        name = f"__share_group_state-{share.state_partition}/{0:020}.log"
        disk.files.fail("pwritev", suffix=name, number=errno.ENOSPC)
        assert await broker.accept(1, 2) is ErrorCode.KAFKA_STORAGE_ERROR
        # The records still belong to the member.
        assert await broker.acquire("other") == []
        assert await broker.accept(1, 1) is ErrorCode.NONE
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(2, 3, 1)]


def alter(broker: RunningShare, *offsets: int | None, number: int = 0) -> list[object]:
    """Alter the start to each offset in turn; return the list that the error codes are added to."""
    codes: list[object] = []
    for offset in offsets:
        broker.delivery.partitions.alter(
            SharePartitionKey("g", broker.topic_id, number),
            offset,
            3,
            lambda error: codes.append(error and error.code),
        )
    return codes


@pytest.mark.parametrize("offsets", [(3,), (None,), (3, 2)])
@virtual
async def test_an_alteration_that_a_full_disk_refuses_has_not_happened(
    clock: VirtualClock, offsets: tuple[int | None, ...]
) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk, stop_cleanly=False) as broker:
        broker.produce(4)
        await broker.acquire()
        await broker.accept(0, 0)
        share = broker.delivery.partitions.find_loaded("g", broker.topic_id, 0)
        assert share is not None
        name = f"__share_group_state-{share.state_partition}/{0:020}.log"
        disk.files.fail("pwritev", suffix=name, number=errno.ENOSPC)
        codes = alter(broker, *offsets)
        await asyncio.sleep(0.1)
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * len(offsets)
        # The member still holds the records.
        assert await broker.acquire("other") == []
        assert await broker.accept(1, 1) is ErrorCode.NONE
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(2, 3, 1)]


@virtual
async def test_a_first_start_that_a_full_disk_refuses_is_that_of_the_reset_policy(
    clock: VirtualClock,
) -> None:
    disk = Disk()
    async with running_share(clock, disk=disk, initialized=(1,), stop_cleanly=False) as broker:
        broker.produce(4)
        partition = broker.delivery.partitions.partition_of(
            SharePartitionKey("g", broker.topic_id, 0)
        )
        log = broker.topics.get("__share_group_state")
        assert log is not None
        log.partitions[partition]
        name = f"__share_group_state-{partition}/{0:020}.log"
        disk.files.fail("pwritev", suffix=name, number=errno.ENOSPC)
        codes = alter(broker, 3)
        await asyncio.sleep(0.1)
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert await broker.acquire() == [Acquired(0, 3, 1)]


@virtual
async def test_an_alteration_to_the_reset_policy_is_answered_when_it_has_happened(
    clock: VirtualClock,
) -> None:
    """Even if a member acquires records while the start offset is looked up."""
    disk = Disk()
    async with running_share(clock, disk=disk, policy="by_duration:PT1H") as broker:
        broker.produce(4)
        await broker.acquire()
        await broker.accept(0, 1)
        broker.produce(1)
        codes = alter(broker, None)
        assert await broker.acquire("other") == [Acquired(4, 4, 1)]
        await asyncio.sleep(0.1)
        assert codes == [None]
        assert await broker.acquire() == [Acquired(0, 4, 1)]
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(0, 4, 1)]


@virtual
async def test_an_alteration_is_answered_when_the_one_that_replaces_it_is_stored(
    clock: VirtualClock,
) -> None:
    async with running_share(clock, policy="by_duration:PT1H") as broker:
        broker.produce(4)
        await broker.acquire()
        codes = alter(broker, None, 2)
        assert codes == []
        await asyncio.sleep(0.1)
        assert codes == [None, None]
        assert await broker.acquire() == [Acquired(2, 3, 1)]


@virtual
async def test_an_alteration_of_what_is_deleted_meanwhile_fails(clock: VirtualClock) -> None:
    async with running_share(clock, policy="by_duration:PT1H") as broker:
        codes = alter(broker, None)
        broker.forget(0)
        await asyncio.sleep(0.1)
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
@pytest.mark.parametrize("lost", [0, 1, 2, 3, 4])
@virtual
async def test_a_loss_of_power_takes_the_last_changes_back(
    clock: VirtualClock, lost: int, policy: str, isolation: str
) -> None:
    disk = Disk()
    async with running_share(
        clock,
        "share.coordinator.snapshot.update.records.per.snapshot=2",
        disk=disk,
        policy=policy,
        stop_cleanly=False,
        share_isolation_level=isolation,
    ) as broker:
        broker.produce(6)
        await broker.acquire()
        share = broker.delivery.partitions.find_loaded("g", broker.topic_id, 0)
        assert share is not None
        state_partition = share.state_partition
        for number in range(4):
            await broker.accept(number, number)
    if lost:
        disk.cut("__share_group_state", state_partition, batches=lost)
    async with running_share(clock, disk=disk) as broker:
        assert await broker.acquire() == [Acquired(4 - lost, 5, 1)]
