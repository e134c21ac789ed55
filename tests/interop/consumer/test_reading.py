"""Reading: positions, where they begin, and how they are moved."""

import asyncio
import contextlib
import json
import time

import pytest

from kohort import Consumer, OffsetAndMetadata, TopicPartition, errors
from tests.interop.consumer.members import TIMEOUT_S, Members, Topics, now_ms, read, values


def assigned(members: Members, *partitions: TopicPartition, **settings: object) -> Consumer:
    """A consumer that reads these on its own."""
    consumer = members.make(**{"group_id": None, **settings})
    consumer.assign(partitions)
    return consumer


async def test_iteration_gives_each_record_once_and_in_order(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    for partition in (0, 1):
        topics.fill(topic, range(300), partition)
    seen: dict[int, list[str]] = {0: [], 1: []}
    async with members.make(topic) as consumer:
        async for record in consumer:
            seen[record.partition].append(record.value.decode())
            if len(seen[0]) + len(seen[1]) == 600:
                break
        assert seen[0] == seen[1] == [str(number) for number in range(300)]
        assert await consumer.position(TopicPartition(topic, 0)) == 300


async def test_positions_move_with_what_was_returned_and_not_with_what_was_fetched(
    topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(), 0)
    topics.fill(partition.topic, range(20))
    async with assigned(members, partition) as consumer:
        first = await consumer.getone()
        assert (first.offset, await consumer.position(partition)) == (0, 1)
        taken = await consumer.poll(TIMEOUT_S, max_records=3)
        assert values(taken[partition]) == ["1", "2", "3"]
        assert await consumer.position(partition) == 4
        async for record in consumer:
            assert await consumer.position(partition) == record.offset + 1
            if record.offset == 10:
                break


async def test_a_poll_without_records_ends_with_its_timeout(
    topics: Topics, members: Members
) -> None:
    async with assigned(members, TopicPartition(topics.create(), 0)) as consumer:
        assert await consumer.poll(0) == {}
        assert await consumer.poll(0.05) == {}
        assert await consumer.getmany(timeout_ms=10) == {}


async def test_one_partition_can_be_read_while_the_others_wait(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    topics.fill(topic, ["a", "b"], 0)
    topics.fill(topic, ["c", "d"], 1)
    async with assigned(members, first, second) as consumer:
        assert (await consumer.getone(second)).value == b"c"
        found = await consumer.getmany(second, timeout_ms=TIMEOUT_S * 1_000)
        assert values(found[second]) == ["d"]
        assert found.keys() == {second}
        assert consumer.paused() == set()
        assert values(await read(consumer, 2)) == ["a", "b"]
        with pytest.raises(errors.IllegalStateError, match="not assigned"):
            await consumer.getmany(TopicPartition(topic, 7))


async def test_seeking_goes_to_an_offset_an_end_or_what_is_committed(
    topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(), 0)
    topics.fill(partition.topic, range(10))
    async with assigned(members, partition, group_id=members.group) as consumer:
        consumer.seek(partition, 4)
        assert values(await read(consumer, 1)) == ["4"]
        await consumer.seek_to_end()
        assert await consumer.position(partition) == 10
        await consumer.seek_to_beginning(partition)
        assert await consumer.position(partition) == 0
        await consumer.commit({partition: 7})
        assert await consumer.seek_to_committed() == {partition: OffsetAndMetadata(7)}
        assert values(await read(consumer, 3)) == ["7", "8", "9"]
        consumer.seek(partition, OffsetAndMetadata(2, "for me"))
        assert values(await read(consumer, 1)) == ["2"]
        with pytest.raises(errors.IllegalStateError):
            consumer.seek(TopicPartition("other", 0), 1)
        with pytest.raises(ValueError, match="is not between"):
            consumer.seek(partition, -1)


async def test_paused_partitions_are_left_out_until_they_are_resumed(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    topics.fill(topic, ["a"], 0)
    topics.fill(topic, ["b"], 1)
    async with assigned(members, first, second) as consumer:
        consumer.pause(first)
        assert consumer.paused() == {first}
        assert values(await read(consumer, 1)) == ["b"]
        assert await consumer.poll(0.1) == {}
        consumer.resume(first)
        assert values(await read(consumer, 1)) == ["a"]


async def test_offsets_can_be_asked_for_by_time_and_at_both_ends(
    topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(), 0)
    begin = now_ms() - 60_000
    topics.fill_at(partition.topic, [begin, begin + 1000, begin + 2000])
    async with assigned(members, partition) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 3}
        found = (await consumer.offsets_for_times({partition: begin + 1}))[partition]
        assert found is not None
        assert found[:2] == (1, begin + 1000)
        assert await consumer.offsets_for_times({partition: begin + 9_000}) == {partition: None}
        with pytest.raises(ValueError, match="is not between"):
            await consumer.offsets_for_times({partition: -2})


@pytest.mark.parametrize(
    ("policy", "expected"), [("earliest", 0), ("latest", 3), ("by_duration:PT30S", 2)]
)
async def test_without_a_committed_offset_the_policy_says_where_to_begin(
    policy: str, expected: int, topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(), 0)
    begin = now_ms() - 60_000
    topics.fill_at(partition.topic, [begin, begin, begin + 50_000])
    async with assigned(members, partition, auto_offset_reset=policy) as consumer:
        assert await consumer.position(partition) == expected


async def test_without_a_policy_the_lack_of_an_offset_is_raised(
    topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(), 0)
    settings = {"group_id": members.group, "auto_offset_reset": "none"}
    async with assigned(members, partition, **settings) as consumer:
        with pytest.raises(errors.NoOffsetError, match="auto_offset_reset is none"):
            await consumer.poll(TIMEOUT_S)
        consumer.seek(partition, 0)
        assert await consumer.poll(0.05) == {}


async def test_a_position_outside_of_the_log_follows_the_policy(
    topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(), 0)
    topics.fill(partition.topic, ["a", "b"])
    async with assigned(members, partition) as consumer:
        consumer.seek(partition, 1_000)
        assert values(await read(consumer, 1)) == ["a"]
    async with assigned(members, partition, auto_offset_reset="none") as consumer:
        consumer.seek(partition, 1_000)
        with pytest.raises(errors.OffsetOutOfRangeError):
            await consumer.poll(TIMEOUT_S)


async def test_keys_and_values_are_deserialised_and_a_failure_names_its_record(
    topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(), 0)
    topics.fill(partition.topic, ['{"n": 1}', "no json", '{"n": 2}'])
    settings = {"value_deserializer": lambda data: json.loads(data)["n"]}
    async with assigned(members, partition, **settings) as consumer:
        assert (await consumer.getone()).value == 1
        with pytest.raises(errors.RecordError, match=f"{partition.topic}-0"):
            await consumer.getone()
        consumer.seek(partition, 2)
        assert (await consumer.getone()).value == 2


async def test_what_is_known_of_topics_can_be_asked_for(topics: Topics, members: Members) -> None:
    topic = topics.create(3)
    topics.fill(topic, ["a"])
    async with assigned(members, TopicPartition(topic, 0)) as consumer:
        assert topic in await consumer.topics()
        assert consumer.partitions_for_topic(topic) == {0, 1, 2}
        assert consumer.partitions_for_topic("unheard-of") is None
        await read(consumer, 1)
        assert consumer.highwater(TopicPartition(topic, 0)) == 1
        assert consumer.last_stable_offset(TopicPartition(topic, 0)) == 1


async def test_partitions_of_any_topic_are_told_with_their_leaders(
    topics: Topics, members: Members, bootstrap: str
) -> None:
    topic = topics.create(3)
    async with assigned(members, TopicPartition(topics.create(), 0)) as consumer:
        found = await consumer.partitions_for(topic)
        assert [(one.topic, one.partition) for one in found] == [(topic, n) for n in range(3)]
        for one in found:
            assert one.leader is not None
            assert f"{one.leader.host}:{one.leader.port}" == bootstrap
            assert one.replicas == one.in_sync_replicas == [one.leader]
            assert one.offline_replicas == []
        with pytest.raises(errors.UnknownTopicError, match="unheard-of"):
            await consumer.partitions_for("unheard-of")


async def test_the_lag_of_a_partition_is_what_is_left_of_it(
    topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(2), 0)
    topics.fill(partition.topic, ["a", "b", "c"])
    async with assigned(members, partition) as consumer:
        assert consumer.current_lag(partition) is None
        await consumer.getone()
        assert consumer.current_lag(partition) == 2
        await read(consumer, 2)
        assert consumer.current_lag(partition) == 0
        consumer.seek(partition, 1)
        assert consumer.current_lag(partition) == 2
        with pytest.raises(errors.IllegalStateError):
            consumer.current_lag(TopicPartition(partition.topic, 1))


async def test_reading_alone_needs_no_group_and_committing_does(
    topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(), 0)
    async with assigned(members, partition) as consumer:
        with pytest.raises(errors.IllegalStateError, match="group_id"):
            await consumer.commit()
        with pytest.raises(errors.IllegalStateError, match="group_id"):
            await consumer.committed(partition)
        with pytest.raises(errors.IllegalStateError, match="group"):
            consumer.enforce_rebalance()
        with pytest.raises(errors.IllegalStateError, match="group_id"):
            consumer.group_metadata()
    async with assigned(members, partition, group_id=members.group) as consumer:
        with pytest.raises(errors.IllegalStateError, match="unsubscribe"):
            consumer.subscribe([partition.topic])


async def test_another_manual_assignment_replaces_the_one_before(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    topics.fill(topic, ["a", "b"], 0)
    topics.fill(topic, ["c"], 1)
    async with assigned(members, first) as consumer:
        assert (await consumer.getone()).value == b"a"
        consumer.assign([second])
        assert (await consumer.getone()).value == b"c"
        consumer.assign([second, first])
        assert consumer.assignment() == {first, second}
        # It is new again, and has no committed offset.
        assert (await consumer.getone()).value == b"a"


async def test_an_application_that_never_waits_leaves_the_loop_to_others(
    topics: Topics, members: Members
) -> None:
    partition = TopicPartition(topics.create(), 0)
    topics.fill(partition.topic, range(500))
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    async with assigned(members, partition) as consumer:
        await consumer.getone()
        other = asyncio.create_task(beat())
        await asyncio.sleep(0)
        before = beats
        async for record in consumer:
            # As one that computes: all of them take 30 times as long as the loop is to be kept.
            time.sleep(0.000_3)  # noqa: ASYNC251 - that is what is tested.
            if record.offset == 499:
                break
        assert beats > before + 10
        other.cancel()


async def test_deserialisers_may_be_coroutine_functions(topics: Topics, members: Members) -> None:
    """Polls that are cancelled, or have no time, lose no record."""
    partition = TopicPartition(topics.create(), 0)
    topics.fill(partition.topic, [*range(150), "no number", *range(151, 200)])

    async def looked_up(data: bytes) -> int:
        await asyncio.sleep(0.0005)
        return int(data)

    async with assigned(members, partition, value_deserializer=looked_up) as consumer:
        found: list[object] = []
        while len(found) < 50:
            for records in (await consumer.getmany(timeout_ms=0, max_records=20)).values():
                found += [record.value for record in records]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.002):
                    found.append((await consumer.getone()).value)
        while len(found) < 150:
            taken = await consumer.poll(TIMEOUT_S, 150 - len(found))
            found += [record.value for records in taken.values() for record in records]
        for _ in range(2):
            with pytest.raises(errors.DeserialisationError, match="offset 150") as caught:
                await consumer.getone()
            assert caught.value.record.value == b"no number"
        consumer.seek(partition, 151)
        found.append(150)
        async for record in consumer:
            found.append(record.value)
            if len(found) == 200:
                break
    assert found == list(range(200))
