"""What is said of a share-partition: who has a record, what holds the start, what a fetch gets."""

import asyncio

from kohort.broker.share.views import SharePartitionView, view_of
from kohort.groups.requests import Now
from kohort.groups.share.state_log import SharePartitionKey
from kohort.protocol.records.control import ControlType
from kohort.testing.virtual_clock import VirtualClock
from tests.support.share.running_share import GROUP, RunningShare, running_share
from tests.support.virtual_time import virtual

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def view(broker: RunningShare) -> SharePartitionView:
    share = broker.delivery.partitions.get(GROUP, broker.topic_id, 0)
    assert share is not None
    now = Now(broker.clock.monotonic_ms(), broker.clock.wall_ms())
    found = view_of(broker.delivery, share, now)
    assert found is not None
    return found


def said_of(broker: RunningShare, offset: int) -> list[str]:
    return list(view(broker).record_texts(offset))


@virtual
async def test_the_oldest_lock_and_the_states_are_shown(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(4)
        await broker.acquire("a")
        await asyncio.sleep(5)
        broker.produce(3)
        await broker.acquire("b")
        await broker.acknowledge([(2, 2, ACCEPT), (3, 3, RELEASE)], "a")
        shown = view(broker).as_json()
        assert (shown["start"], shown["end"], shown["log_end"], shown["lag"]) == (0, 6, 7, 6)
        assert (shown["available"], shown["acquired"], shown["finished"]) == (1, 5, 1)
        lock = shown["oldest_lock"]
        assert (lock["offset"], lock["member_id"], lock["delivery_count"]) == (0, "a", 1)
        assert lock["records"] == 2
        now_ms = clock.wall_ms()
        assert (now_ms - lock["since_ms"], lock["until_ms"] - now_ms) == (5_000, 25_000)
        assert now_ms - shown["held_since_ms"] == 5_000


@virtual
async def test_a_renewed_lock_is_held_since_its_acquisition(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(2)
        await broker.acquire("a")
        await asyncio.sleep(20)
        await broker.acknowledge([(0, 1, RENEW)], "a", is_renew_ack=True)
        await asyncio.sleep(20)
        text = view(broker).start_text()
        assert (
            "kept the start offset of t-0 from advancing for 40 s: member a acquired it 40 s ago"
            in text
        )
        assert "the lock expires in 10 s" in text


@virtual
async def test_the_start_is_held_anew_when_it_moves(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        assert "Nothing of t-0 is in flight" in view(broker).start_text()
        broker.produce(2)
        await asyncio.sleep(5)
        await broker.acquire("a")
        await asyncio.sleep(10)
        assert (
            "Record 0 has kept the start offset of t-0 from advancing for 10 s"
            in view(broker).start_text()
        )
        await broker.acknowledge([(0, 0, ACCEPT)], "a")
        await asyncio.sleep(3)
        assert (
            "Record 1 has kept the start offset of t-0 from advancing for 3 s"
            in view(broker).start_text()
        )


@virtual
async def test_why_a_fetch_is_empty(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(2)
        assert "acquires records from offset 0" in view(broker).fetch_text()
        await broker.acquire("a")
        assert "the first expires in 30 s" in view(broker).fetch_text()
        await broker.topics.changes.alter_group(
            GROUP, lambda configs: {**configs, "share.partition.max.record.locks": "100"}
        )
        broker.produce(120)
        await broker.acquire("a")
        assert "122 records are in flight, the limit is 100" in view(broker).fetch_text()


@virtual
async def test_why_a_fetch_gets_few_records(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(10)
        for _ in range(3):
            await broker.acquire("a")
            await broker.acknowledge([(0, 9, RELEASE)], "a")
        text = view(broker).fetch_text()
        assert "at most 5 records from offset 0 on" in text
        assert "3 of 5 times" in text
        (acquired,) = await broker.acquire("a")
        assert acquired.last == 4


@virtual
async def test_open_and_aborted_transactions(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        await broker.topics.changes.alter_group(
            GROUP, lambda configs: {**configs, "share.isolation.level": "read_committed"}
        )
        log = broker.topics.partition("t", 0)
        assert log is not None
        broker.produce(2, producer_id=7, producer_epoch=0, is_transactional=True)
        assert "a transaction of producer 7 is open from offset 0" in view(broker).fetch_text()
        log.append_marker(
            7,
            0,
            ControlType.ABORT,
            coordinator_epoch=0,
            transaction_version=1,
            wall_ms=clock.wall_ms(),
        )
        await broker.acquire("a")
        assert "its transaction was aborted" in said_of(broker, 1)[0]


@virtual
async def test_what_became_of_a_record(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(4)
        await broker.acquire("a")
        await broker.acknowledge([(0, 0, ACCEPT), (1, 1, REJECT), (2, 2, RELEASE)], "a")
        clock.advance(2_000)
        assert said_of(broker, 0) == [
            "Record 0 of t-0: it is finished, or lies before the offset at which the group began."
        ]
        assert said_of(broker, 1)[1:] == ["  Delivery 1: member a rejected it, 2 s ago."]
        assert "available again after 1 of 5 deliveries" in said_of(broker, 2)[0]
        assert "member a acquired it 2 s ago" in said_of(broker, 3)[0]
        assert "it does not exist yet" in said_of(broker, 4)[0]


@virtual
async def test_a_group_id_cannot_forge_lines_of_the_log(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        key = SharePartitionKey("g\n2026-01-01 ERROR forged\x1b[2K", broker.topic_id, 0)
        broker.delivery.partitions.alter(key, 0, 1, lambda _: None)
        share = broker.delivery.partitions.get(*key)
        assert share is not None
        assert repr(share).isprintable()
