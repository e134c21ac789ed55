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
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import CompressionType, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.virtual_clock import VirtualClock
from tests.support.share.running_share import GROUP, TOPIC, Acquired, RunningShare, running_share
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


async def configure(broker: RunningShare, **configs: str | None) -> None:
    def alteration(known: Any) -> dict[str, str]:  # noqa: ANN401
        named = {name.replace("_", "."): value for name, value in configs.items()}
        return {name: value for name, value in {**known, **named}.items() if value is not None}

    await broker.topics.changes.alter_group(GROUP, alteration)


def produce(broker: RunningShare, *records: Record, **batch: Any) -> None:  # noqa: ANN401
    now = broker.clock.wall_ms()
    encoded = encode_batch([record._replace(timestamp=now) for record in records], **batch)
    broker.log.append(encoded, read_header(encoded), wall_ms=now)


@virtual
async def test_a_rejected_record(clock: VirtualClock) -> None:
    async with running(clock) as broker:
        produce(broker, Record(b"v", b"k", headers=(("own", b"h"),)))
        assert await broker.acquire() == [Acquired(0, 0, 1)]
        clock.advance(1_000)
        await broker.acknowledge([(0, 0, REJECT)])
        await settled(broker)
        (letter,) = dead_letters(broker)
        assert letter == Record(
            None,
            None,
            (
                ("__dlq.errors.topic", TOPIC.encode()),
                ("__dlq.errors.partition", b"0"),
                ("__dlq.errors.offset", b"0"),
                ("__dlq.errors.group", GROUP.encode()),
                ("__dlq.errors.delivery.count", b"1"),
                ("__dlq.errors.message", b"Offset rejected by client."),
            ),
            timestamp=clock.wall_ms(),
            offset=0,
        )
        assert await broker.acquire() == []


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
async def test_records_at_the_delivery_limit(clock: VirtualClock) -> None:
    exceeded = "Offset delivery count exceeded the threshold."
    async with running(clock, share_delivery_count_limit="2") as broker:
        broker.produce(3)
        assert await broker.acquire("m") == [Acquired(0, 2, 1)]
        await broker.acknowledge([(0, 2, RELEASE)], "m")
        await broker.acquire("m")
        await broker.acknowledge([(0, 0, RELEASE)], "m")
        await broker.acknowledge([(1, 1, ACCEPT)], "m", epoch=-1)
        await settled(broker)
        broker.produce(1)
        await broker.acquire("a")
        await asyncio.sleep(31)
        await broker.acquire("b")
        await asyncio.sleep(31)
        await settled(broker)
        assert about(broker, "offset", "delivery.count", "message") == [
            ("0", "2", exceeded),
            ("2", "2", exceeded),
            ("3", "2", exceeded),
        ]


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
@virtual
async def test_copied_records(clock: VirtualClock, codec: CompressionType) -> None:
    async with running(clock, errors_deadletterqueue_copy_record_enable="true") as broker:
        produce(broker, Record(b"v0", b"k0"), Record(b"v1"), Record(None, b"k2"), codec=codec)
        produce(broker, Record(b"v3", headers=(("own", b"h"),)), codec=codec)
        await broker.acquire()
        await broker.acknowledge([(2, 3, REJECT)])
        await broker.acknowledge([(0, 1, REJECT)])
        await settled(broker)
        assert [letter[:2] for letter in dead_letters(broker)] == [
            (None, b"k2"),
            (b"v3", None),
            (b"v0", b"k0"),
            (b"v1", None),
        ]
        assert all(len(letter.headers) == 6 for letter in dead_letters(broker))


@virtual
async def test_a_record_too_large_for_the_dead_letter_topic_is_not_copied(
    clock: VirtualClock,
) -> None:
    topic = ENABLED | {"max.message.bytes": "1000"}
    copied = {"errors_deadletterqueue_copy_record_enable": "true"}
    async with running(clock, topic=topic, **copied) as broker:
        produce(broker, *(Record(b"v" * size) for size in (600, 900, 600, 10)))
        await broker.acquire()
        await broker.acknowledge([(0, 3, REJECT)])
        await settled(broker)
        sizes = [len(letter.value or b"") for letter in dead_letters(broker)]
        assert sizes == [600, 0, 600, 10]


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


@virtual
async def test_a_missing_topic_is_created_if_the_settings_say_so(clock: VirtualClock) -> None:
    setting = "errors.deadletterqueue.auto.create.topics.enable=true"
    async with running(clock, setting, topic=None) as broker:
        broker.produce(1)
        await broker.acquire()
        await broker.acknowledge([(0, 0, REJECT)])
        await settled(broker)
        assert len(dead_letters(broker)) == 1
        topic = broker.topics.get(DEAD_LETTERS)
        assert topic is not None
        assert topic.config.errors_deadletterqueue_group_enable


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


@virtual
async def test_a_change_of_configs_applies_to_the_next_acknowledgement(
    clock: VirtualClock,
) -> None:
    async with running(clock) as broker:
        broker.produce(3)
        await broker.acquire()
        await configure(broker, errors_deadletterqueue_topic_name=None)
        await broker.acknowledge([(0, 0, REJECT)])
        await configure(broker, errors_deadletterqueue_topic_name=DEAD_LETTERS)
        await broker.acknowledge([(1, 1, REJECT)])
        await settled(broker)
        assert about(broker, "offset") == [("1",)]


@pytest.mark.parametrize("name", ["__dlq.t", "t", "dlq.a b", "dlq." + "x" * 250])
@virtual
async def test_names_that_no_dead_letter_topic_has_are_refused(
    clock: VirtualClock, name: str
) -> None:
    async with running(clock) as broker:
        with pytest.raises(KafkaError) as refused:
            await configure(broker, errors_deadletterqueue_topic_name=name)
        assert refused.value.code is ErrorCode.INVALID_CONFIG


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
