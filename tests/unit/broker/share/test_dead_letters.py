"""Records that a share group rejects, or does not accept in time, become dead letters."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kohort.broker.share.dead_letters import RECORDS_MAX
from kohort.broker.share.views import view_of
from kohort.broker.topics.internal_log import read_batches, read_records
from kohort.groups.requests import Now
from kohort.groups.share.segments import Segment
from kohort.groups.share.states import RecordState
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.virtual_clock import VirtualClock
from tests.support.share.running_share import GROUP, Acquired, RunningShare, running_share
from tests.support.transactions.running_transactions import Disk
from tests.support.virtual_time import virtual

GAP, ACCEPT, RELEASE, REJECT = range(4)
DEAD_LETTERS = "dlq.t"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}


@asynccontextmanager
async def running(
    clock: VirtualClock,
    *overrides: str,
    topic: dict[str, str] | None = ENABLED,
    **arguments: Any,  # noqa: ANN401
) -> AsyncIterator[RunningShare]:
    """A group with a dead-letter topic, which has these configs; None if it does not exist."""
    group = {"errors_deadletterqueue_topic_name": DEAD_LETTERS}
    async with running_share(clock, *overrides, **group | arguments) as broker:
        if topic is not None and broker.topics.get(DEAD_LETTERS) is None:
            await broker.topics.changes.create_topic(DEAD_LETTERS, partition_count=1, configs=topic)
        yield broker


async def settled(broker: RunningShare) -> None:
    """Wait until nothing is Archiving any more."""
    share = broker.delivery.partitions.find_loaded(GROUP, broker.topic_id, 0)
    assert share is not None
    assert share.window is not None

    def is_archiving(segment: Segment) -> bool:
        return segment.write is not None or segment.state is RecordState.ARCHIVING

    while any(map(is_archiving, share.window.segments())):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def dead_letters(broker: RunningShare) -> list[Record]:
    log = broker.topics.partition(DEAD_LETTERS, 0)
    return [] if log is None else list(read_records(log, 0))


def about(broker: RunningShare, *names: str) -> list[Sequence[str]]:
    """Return these headers of all dead letters."""
    return [
        tuple(dict(letter.headers)[f"__dlq.errors.{name}"].decode() for name in names)  # type: ignore[union-attr]
        for letter in dead_letters(broker)
    ]


def produce(broker: RunningShare, *records: Record, **batch: Any) -> None:  # noqa: ANN401
    now = broker.clock.wall_ms()
    encoded = encode_batch([record._replace(timestamp=now) for record in records], **batch)
    broker.log.append(encoded, read_header(encoded), wall_ms=now)


@virtual
async def test_letters_are_in_order_of_acknowledgement(clock: VirtualClock) -> None:
    async with running(clock) as broker:
        broker.produce(8)
        await broker.acquire()
        await broker.acknowledge([(4, 5, REJECT), (6, 6, GAP), (7, 7, ACCEPT)])
        await broker.fetch(acknowledge=[(0, 1, REJECT), (3, 3, REJECT)])
        await broker.acknowledge([(2, 2, REJECT)])
        await settled(broker)
        assert about(broker, "offset") == [("4",), ("5",), ("0",), ("1",), ("3",), ("2",)]


@virtual
async def test_records_deleted_after_their_acknowledgement_have_no_content(
    clock: VirtualClock,
) -> None:
    async with running(clock, errors_deadletterqueue_copy_record_enable="true") as broker:
        produce(broker, Record(b"0"), Record(b"1"))
        await broker.acquire()
        queue = broker.delivery._dead_letters
        put = queue.put

        def delete_and_put(*arguments: Any) -> None:  # noqa: ANN401
            broker.log.log.delete_records_before(2, wall_ms=clock.wall_ms())
            put(*arguments)

        queue.put = delete_and_put  # type: ignore[assignment, method-assign]
        await broker.acknowledge([(0, 1, REJECT)])
        await settled(broker)
        assert [letter.value for letter in dead_letters(broker)] == [None, None]
        assert await broker.acquire() == []


@virtual
async def test_many_letters_are_appended_in_batches(clock: VirtualClock) -> None:
    count = 2 * RECORDS_MAX + 1
    async with running(clock) as broker:
        broker.produce(count)
        await broker.acquire(max_records=count)
        await broker.acknowledge([(0, count - 1, REJECT)])
        await settled(broker)
        log = broker.topics.partition(DEAD_LETTERS, 0)
        assert log is not None
        batches = [header.record_count for header, _ in read_batches(log, 0)]
        assert batches == [RECORDS_MAX, RECORDS_MAX, 1]
        assert [int(offset) for (offset,) in about(broker, "offset")] == list(range(count))
        assert await broker.acquire() == []


@pytest.mark.parametrize(
    "topic",
    [None, {}, ENABLED | {"cleanup.policy": "compact"}, ENABLED | {"max.message.bytes": "100"}],
    ids=["missing", "not enabled", "needs keys", "small"],
)
@virtual
async def test_records_without_a_usable_topic_are_archived(
    clock: VirtualClock, topic: dict[str, str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(clock, topic=topic) as broker:
        broker.produce(2)
        await broker.acquire()
        with caplog.at_level(logging.ERROR):
            await broker.acknowledge([(0, 1, REJECT)])
            await settled(broker)
        assert "2 records of t-0 from offset 0 on" in caplog.text
        assert dead_letters(broker) == []
        assert await broker.acquire() == []
        report = broker.delivery.partitions.reports.get(GROUP)
        assert report is not None
        (ended,) = report.archived
        assert ended.dead_letter is not None
        assert ended.dead_letter.error


@pytest.mark.parametrize("is_appended", [False, True])
@virtual
async def test_a_crash_before_records_are_archived(clock: VirtualClock, is_appended: bool) -> None:
    """Every record gets a dead letter, at least once, and is not delivered again."""
    disk = Disk()
    async with running(clock, disk=disk, stop_cleanly=False) as broker:
        broker.produce(4)
        await broker.acquire()
        queue = broker.delivery._dead_letters
        if is_appended:
            # The broker ends when the letters are in the log.
            append = queue._append_batch

            async def append_and_wait(*arguments: Any) -> int:  # noqa: ANN401
                await append(*arguments)
                await asyncio.Event().wait()
                return -1

            queue._append_batch = append_and_wait  # type: ignore[assignment, method-assign]
        else:
            queue.put = lambda *_: None  # type: ignore[method-assign]
        await broker.acknowledge([(0, 0, ACCEPT), (1, 2, REJECT)])
        await asyncio.sleep(1)
        assert len(dead_letters(broker)) == (2 if is_appended else 0)
    async with running(clock, disk=disk) as broker:
        await settled(broker)
        assert about(broker, "offset") == [("1",), ("2",)] * (1 + is_appended)
        assert await broker.acquire() == [Acquired(3, 3, 1)]


@virtual
async def test_what_is_known_of_a_record(clock: VirtualClock) -> None:
    async with running(clock) as broker:
        broker.produce(4)
        await broker.acquire()
        await broker.acknowledge(
            [
                (3, 3, REJECT),
            ]
        )
        await broker.acknowledge([(1, 2, REJECT)])
        await settled(broker)
        share = broker.delivery.partitions.find_loaded(GROUP, broker.topic_id, 0)
        assert share is not None
        view = view_of(broker.delivery, share, Now(clock.monotonic_ms(), clock.wall_ms()))
        assert view is not None
        state, delivery = view.record_texts(2)
        assert "archived" in state
        assert "offset 2 of dlq.t-0" in delivery
        assert share.counts.dead_letters == 3
