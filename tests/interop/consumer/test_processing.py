"""`Consumer.run` against either broker: order, commits, dead letters, rebalances, ends."""

import asyncio
import json
from collections import defaultdict
from functools import partial
from typing import Any

import pytest
from aiokafka.errors import ProducerClosed

from kohort import Consumer, ConsumerRecord, TopicPartition, errors
from kohort.client.processing.dead_letters import PREFIX, DeadLetter, TopicSink
from tests.interop.consumer.members import Members, Topics, read, values

Record = ConsumerRecord[Any, Any]


class Handled:
    """Writes down what handlers are given, and ends the run when there is enough of it."""

    def __init__(self, consumer: Consumer, until: int) -> None:
        self.records: list[Record] = []
        self._consumer = consumer
        self._until = until

    def note(self, record: Record) -> None:
        self.records.append(record)
        if len(self.records) >= self._until:
            self._consumer.end_run()

    async def __call__(self, record: Record) -> None:
        await asyncio.sleep(0.001 * (record.offset % 3))
        self.note(record)

    @property
    def by_partition(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for record in self.records:
            found[record.partition].append(record.offset)
        return dict(found)


async def test_what_was_handled_is_committed_and_no_more(topics: Topics, members: Members) -> None:
    topic = topics.create(2)
    for partition in range(2):
        topics.fill(topic, range(100), partition)
    consumer = await members.start(topic)
    handled = Handled(consumer, 150)
    await consumer.run(handled, concurrency=4)
    assert len(handled.records) >= 150
    for partition, offsets in handled.by_partition.items():
        assert offsets == list(range(len(offsets))), "out of order"
        place = TopicPartition(topic, partition)
        assert await consumer.committed(place) == len(offsets)
        assert await consumer.position(place) == len(offsets)
    rest = await read(consumer, 200 - len(handled.records))
    assert len({(one.partition, one.offset) for one in [*handled.records, *rest]}) == 200


async def test_keys_keep_their_order_while_one_of_them_is_tried_again(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill_keyed(topic, [(f"k{number % 5}", str(number)) for number in range(100)])
    consumer = await members.start(topic)
    handled = Handled(consumer, 100)
    failures = iter(range(3))

    async def fail_at_first(record: Record) -> None:
        if record.value == b"10" and next(failures, None) is not None:
            raise OSError("not yet")
        await handled(record)

    await consumer.run(
        fail_at_first, concurrency=8, ordering="key", retry_backoff_ms=50, retry_jitter=0.0
    )
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for record in handled.records:
        by_key[record.key].append(int(record.value))
    assert by_key == {b"k%d" % key: list(range(key, 100, 5)) for key in range(5)}
    order = values(handled.records)
    assert order.index("10") > order.index("11"), "others did not wait for it"
    figures = consumer.health().run
    assert figures is not None
    assert (figures.handled, figures.failed, figures.retried) == (100, 3, 3)
    assert await consumer.committed(TopicPartition(topic, 0)) == 100


async def test_what_cannot_be_handled_or_read_goes_to_the_dead_letters_with_its_history(
    topics: Topics, members: Members
) -> None:
    topic, dead_topic = topics.create(), topics.create()
    topics.fill(topic, ['{"n": 1}', "no json", '{"n": 2}', '{"n": 3}'])
    consumer = await members.start(topic, value_deserializer=json.loads)
    handled = Handled(consumer, 2)

    def refuse_two(record: Record) -> None:
        if record.value["n"] == 2:
            raise LookupError("there is no two")
        handled.note(record)

    await consumer.run(refuse_two, dead_letter=dead_topic, retries=1, retry_backoff_ms=1)
    assert [record.value["n"] for record in handled.records] == [1, 3]
    assert await consumer.committed(TopicPartition(topic, 0)) == 4
    reader = await members.start(group_id=None)
    reader.assign([TopicPartition(dead_topic, 0)])
    unread, refused = await read(reader, 2)
    assert (unread.value, refused.value) == (b"no json", b'{"n": 2}')
    history = {
        name.removeprefix(PREFIX): (value or b"").decode() for name, value in refused.headers
    }
    assert int(history.pop("timestamp")) > 0
    assert int(history.pop("failed.at")) > 0
    assert "refuse_two" in history.pop("stacktrace")
    assert history == {
        "topic": topic,
        "partition": "0",
        "offset": "2",
        "group": members.group,
        "exception": "LookupError",
        "message": "there is no two",
        "attempts": "2",
    }
    told = dict(unread.headers)
    assert told[f"{PREFIX}exception"] == b"kohort.client.core.errors.DeserialisationError"
    assert told[f"{PREFIX}cause"] is not None
    assert told[f"{PREFIX}attempts"] == b"1"


async def test_a_dead_letter_that_cannot_be_written_is_tried_until_it_can(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(3))
    consumer = await members.start(topic)
    handled = Handled(consumer, 2)
    letters: list[DeadLetter] = []
    refusals = iter(range(4))

    async def write(letter: DeadLetter) -> None:
        if next(refusals, None) is not None:
            assert await consumer.committed(TopicPartition(topic, 0)) in {None, 0, 1}
            raise ConnectionError("nobody there")
        letters.append(letter)

    def refuse_the_second(record: Record) -> None:
        if record.offset == 1:
            raise LookupError("never")
        handled.note(record)

    await consumer.run(
        refuse_the_second, dead_letter=write, retries=0, retry_backoff_ms=5, commit_interval_ms=1
    )
    assert [letter.record.offset for letter in letters] == [1]
    assert values(handled.records) == ["0", "2"]
    assert await consumer.committed(TopicPartition(topic, 0)) == 3


async def test_a_producer_of_dead_letters_that_failed_for_good_is_made_again(
    topics: Topics, members: Members
) -> None:
    source, dead_topic = topics.create(), topics.create()
    topics.fill(source, ["poison"])
    consumer = await members.start(source)
    (record,) = await read(consumer, 1)
    letter = DeadLetter(record, ValueError("no"), attempts=1, group_id="g", failed_at_ms=0)
    sink = TopicSink(dead_topic, consumer.config)
    await sink.start()
    await sink.write(letter)
    await sink._producer.stop()
    with pytest.raises(ProducerClosed):
        await sink.write(letter)
    await sink.write(letter)
    await sink.stop()
    reader = await members.start(group_id=None)
    reader.assign([TopicPartition(dead_topic, 0)])
    assert values(await read(reader, 2)) == ["poison", "poison"]


async def test_without_dead_letters_the_run_ends_with_the_record_that_failed(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(5))
    consumer = await members.start(topic)
    handled = Handled(consumer, 5)

    async def refuse_the_third(record: Record) -> None:
        if record.offset == 2:
            raise LookupError("never")
        await handled(record)

    with pytest.raises(errors.HandlerError, match=r"-0@2 could not be handled") as caught:
        await consumer.run(refuse_the_third, retries=0)
    assert (caught.value.partition, caught.value.offset) == (TopicPartition(topic, 0), 2)
    assert caught.value.record.value == b"2"
    assert isinstance(caught.value.__cause__, LookupError)
    assert await consumer.committed(TopicPartition(topic, 0)) == 2
    await consumer.run(handled, on_failure="skip")
    assert values(handled.records) == ["0", "1", "2", "3", "4"]


async def test_what_may_be_skipped_is_passed_over(topics: Topics, members: Members) -> None:
    topic = topics.create()
    topics.fill(topic, range(5))
    consumer = await members.start(topic)
    handled = Handled(consumer, 4)

    def refuse_the_third(record: Record) -> None:
        if record.offset == 2:
            raise LookupError("never")
        handled.note(record)

    await consumer.run(refuse_the_third, retries=0, on_failure="skip")
    assert values(handled.records) == ["0", "1", "3", "4"]
    assert await consumer.committed(TopicPartition(topic, 0)) == 5


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_partitions_that_move_are_drained_and_committed_before(
    topics: Topics, members: Members, strategy: str
) -> None:
    topic = topics.create(4)
    for partition in range(4):
        topics.fill(topic, range(60), partition)
    settings: dict[str, Any] = {
        "partition_assignment_strategy": strategy,
        "auto_commit_interval_ms": 600_000,
        "heartbeat_interval_ms": 50,
    }
    seen: list[tuple[int, int, int]] = []
    consumers: list[Consumer] = []
    some_are_handled = asyncio.Event()

    async def handle(who: int, record: Record) -> None:
        # The first one has to be amid its work when the second one's partitions come.
        both_work = any(each[0] == 1 for each in seen)
        is_early = len(seen) < 20
        await asyncio.sleep(0.01 if both_work or is_early else 0.2)
        seen.append((who, record.partition, record.offset))
        if len(seen) == 20:
            some_are_handled.set()
        if len({each[1:] for each in seen}) == 240:
            for one in consumers:
                one.end_run()

    async with asyncio.TaskGroup() as tasks:
        for who in range(2):
            consumer = await members.start(topic, **settings)
            consumers.append(consumer)
            tasks.create_task(consumer.run(partial(handle, who), concurrency=8))
            await some_are_handled.wait()
    assert sorted(each[1:] for each in seen) == [(p, o) for p in range(4) for o in range(60)]
    assert {each[0] for each in seen} == {0, 1}
    for partition in range(4):
        assert [o for _, p, o in seen if p == partition] == list(range(60))
        assert await consumers[0].committed(TopicPartition(topic, partition)) == 60


async def test_a_run_that_is_cancelled_commits_what_was_done_and_nothing_in_hand(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(20))
    consumer = await members.start(topic)
    cancelled: list[int] = []
    is_stuck = asyncio.Event()

    async def stick(record: Record) -> None:
        if record.offset == 7:
            is_stuck.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(record.offset)

    async with consumer:
        running = asyncio.create_task(consumer.run(stick, ordering="key"))
        await is_stuck.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert cancelled == [7]
        assert await consumer.committed(TopicPartition(topic, 0)) == 7
    again = await members.start(topic)
    assert values(await read(again, 1)) == ["7"]


async def test_stop_drains_what_is_in_hand(topics: Topics, members: Members) -> None:
    topic = topics.create(3)
    for partition in range(3):
        topics.fill(topic, range(5), partition)
    consumer = await members.start(topic)
    begun: list[Record] = []
    done: list[Record] = []
    may_end, all_are_in_hand = asyncio.Event(), asyncio.Event()

    async def wait(record: Record) -> None:
        begun.append(record)
        if len(begun) == 3:
            all_are_in_hand.set()
        await may_end.wait()
        done.append(record)

    running = asyncio.create_task(consumer.run(wait))
    await all_are_in_hand.wait()
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0.05)
    assert not running.done()
    may_end.set()
    await asyncio.gather(running, stopping)
    assert sorted(begun) == sorted(done)
    assert len(done) == 3, "nothing was begun after the stop"
    again = await members.start(topic)
    rest = await read(again, 12)
    assert not {(one.partition, one.offset) for one in done} & {
        (one.partition, one.offset) for one in rest
    }


async def test_a_stop_that_is_cancelled_ends_handlers_that_hang_at_once(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(3))
    consumer = await members.start(topic, session_timeout_ms=2_000)
    is_in_hand = asyncio.Event()

    async def hang(record: Record) -> None:
        is_in_hand.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(consumer.run(hang))
    await is_in_hand.wait()
    stopping = asyncio.create_task(consumer.stop(300))
    await asyncio.sleep(0.01)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await running
    assert consumer.health().is_closed
    again = await members.start(topic)
    assert values(await read(again, 1)) == ["0"]


async def test_while_it_runs_no_one_else_reads_and_a_commit_is_of_what_is_handled(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(10))
    consumer = await members.start(topic)
    refused: list[Exception] = []

    async def meddle(record: Record) -> None:
        if record.offset == 3:
            for reading in (
                consumer.poll(),
                consumer.getone(),
                consumer.stop(),
                consumer.run(meddle),
            ):
                with pytest.raises(errors.IllegalStateError) as caught:
                    await reading
                refused.append(caught.value)
            await consumer.commit()
            assert await consumer.committed(TopicPartition(topic, 0)) == 3
        if record.offset == 9:
            consumer.end_run()

    await consumer.run(meddle, retries=0)
    assert len(refused) == 4
