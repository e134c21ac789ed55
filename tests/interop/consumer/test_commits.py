"""Commits: by hand and by themselves, waited for and not."""

import asyncio
from typing import Any

import pytest

from kohort import OffsetAndMetadata, TopicPartition, errors
from kohort.client.group.callbacks import Offsets
from tests.interop.consumer.members import TIMEOUT_S, Members, Topics, is_at_rest, read, values


async def test_a_commit_without_offsets_is_of_what_was_returned(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    partition = TopicPartition(topic, 0)
    topics.fill(topic, range(10))
    async with members.make(topic, enable_auto_commit=False) as consumer:
        assert await consumer.committed(partition) is None
        async for record in consumer:
            if record.offset == 4:
                break
        await consumer.commit()
        assert await consumer.committed(partition) == 5
    async with members.make(topic, enable_auto_commit=False) as consumer:
        assert values(await read(consumer, 5)) == ["5", "6", "7", "8", "9"]


async def test_commits_that_are_not_waited_for_are_made_and_told_in_order(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    partition = TopicPartition(topic, 0)
    consumer = await members.start(topic, enable_auto_commit=False)
    await members.settle(consumer, partitions=1)
    told: list[int] = []

    def plain(offsets: Offsets, error: Exception | None) -> None:
        assert error is None
        told.append(offsets[partition].offset)

    async def coroutine(offsets: Offsets, error: Exception | None) -> None:
        await asyncio.sleep(0)
        plain(offsets, error)

    for offset in range(1, 21):
        consumer.commit_async({partition: offset}, plain if offset % 2 else coroutine)
    assert told == []
    await consumer.commit({partition: 21})
    assert told == list(range(1, 21))
    assert await consumer.committed(partition) == 21
    consumer.commit_async({partition: (22, "note")}, plain)
    await members.poll_until([consumer], lambda: 22 in told)
    assert (await consumer.committed_offsets([partition]))[partition] == OffsetAndMetadata(
        22, "note"
    )


async def test_a_commit_that_is_not_waited_for_reports_its_failure_once(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    consumer = await members.start(topic)
    heard: list[Exception | None] = []
    consumer.commit_async({TopicPartition(topic, 0): 1}, lambda _, error: heard.append(error))
    await members.poll_until([consumer], lambda: bool(heard))
    await members.poll_once(consumer)
    assert len(heard) == 1
    assert isinstance(heard[0], errors.CommitError)


async def test_too_many_commits_that_no_one_waits_for_are_refused(
    topics: Topics, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.client.group.offsets.ASYNC_COMMITS_MAX", 20)
    partition = TopicPartition(topics.create(), 0)
    consumer = members.make()
    consumer.assign([partition])
    await consumer.start()

    def commit_often() -> None:
        for offset in range(21):
            consumer.commit_async({partition: offset})

    with pytest.raises(errors.IllegalStateError, match="commit less often"):
        commit_often()
    await consumer.commit({partition: 5_000})
    assert await consumer.committed(partition) == 5_000


async def test_positions_are_committed_by_themselves_after_the_interval(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    partition = TopicPartition(topic, 0)
    topics.fill(topic, range(4))
    consumer = await members.start(topic, auto_commit_interval_ms=50)
    await read(consumer, 4)
    other = members.make()
    other.assign([])
    await other.start()
    async with asyncio.timeout(60):
        while await other.committed(partition) != 4:
            await consumer.poll(0.05)


async def test_what_moves_to_another_member_was_committed_before(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(4)
    for partition in range(4):
        topics.fill(topic, range(20), partition)
    for strategy in ("range", "cooperative-sticky"):
        group = f"{members.group}-{strategy}"
        settings: dict[str, Any] = {
            "group_id": group,
            "partition_assignment_strategy": strategy,
            "auto_commit_interval_ms": 600_000,
            "max_poll_records": 7,
        }
        first = await members.start(topic, **settings)
        records = await read(first, 30)
        second = await members.start(topic, **settings)
        both = (first, second)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while len(records) < 80:
                    records += await members.poll_once(*both)
        except TimeoutError:
            pytest.fail(f"{len(records)} of 80 records; {[one.health() for one in both]}")
        await members.settle(*both, partitions=4)
        places = [(record.partition, record.offset) for record in records]
        assert len(places) == len(set(places)), "something was read twice"
        assert await members.poll_once(*both) == []


async def test_who_is_no_member_cannot_commit(topics: Topics, members: Members) -> None:
    topic = topics.create()
    partition = TopicPartition(topic, 0)
    subscribed = await members.start(topic)
    with pytest.raises(errors.CommitFailedError, match="poll first"):
        await subscribed.commit({partition: 1})
    await members.settle(subscribed, partitions=1)
    outsider = members.make()
    outsider.assign([partition])
    await outsider.start()
    with pytest.raises(errors.CommitFailedError, match="has members"):
        await outsider.commit({partition: 1})


async def test_a_commit_in_the_middle_of_an_eager_rebalance_says_so(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    settings: dict[str, Any] = {
        "partition_assignment_strategy": "range",
        "enable_auto_commit": False,
    }
    first = await members.start(topic, **settings)
    second = await members.start(topic, **settings)
    await members.settle(first, second, partitions=2)
    first.enforce_rebalance()
    # It joins, and the second one, which is not polled, keeps it waiting.
    await members.poll_until([first], lambda: not first.assignment())
    with pytest.raises(errors.RebalanceInProgressError, match="poll"):
        await first.commit({TopicPartition(topic, 0): 1})
    await members.settle(first, second, partitions=2)
    await first.commit(dict.fromkeys(first.assignment(), 1))


async def test_metadata_that_is_too_long_is_refused(topics: Topics, members: Members) -> None:
    partition = TopicPartition(topics.create(), 0)
    consumer = members.make()
    consumer.assign([partition])
    await consumer.start()
    with pytest.raises(errors.CommitError, match=r"offset\.metadata\.max\.bytes"):
        await consumer.commit({partition: (1, "x" * 5_000)})


async def test_a_member_that_reads_on_in_a_cooperative_rebalance_can_commit(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    first = await members.start(topic, enable_auto_commit=False)
    second = await members.start(topic, enable_auto_commit=False)
    await members.settle(first, second, partitions=2)
    kept = next(iter(first.assignment()))
    first.enforce_rebalance()
    await members.poll_until([first], lambda: not is_at_rest(first))
    await first.commit({kept: 3})
    assert await first.committed(kept) == 3
    await members.settle(first, second, partitions=2)


async def test_a_member_commits_what_it_owns_unless_it_says_otherwise(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    other = topics.create()
    consumer = await members.start(topic, enable_auto_commit=False)
    await members.settle(consumer, partitions=2)
    mine, strange = TopicPartition(topic, 0), TopicPartition(other, 0)
    with pytest.raises(errors.IllegalStateError, match="commit_unassigned"):
        await consumer.commit({mine: 1, strange: 1})
    with pytest.raises(errors.IllegalStateError, match=other):
        consumer.commit_async({strange: 1})
    assert await consumer.committed(mine) is None
    await consumer.stop()
    consumer = await members.start(topic, enable_auto_commit=False, commit_unassigned=True)
    await members.settle(consumer, partitions=2)
    await consumer.commit({mine: 1, strange: 1})
    assert await consumer.committed(strange) == 1
