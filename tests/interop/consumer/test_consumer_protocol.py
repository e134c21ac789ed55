"""Members in the consumer group protocol (KIP-848): the broker assigns, each member reconciles."""

import asyncio
import time
import uuid
from collections.abc import Collection
from functools import partial
from typing import Any

import pytest

from kohort import Consumer, TopicPartition, errors
from tests.interop.consumer.members import (
    TIMEOUT_S,
    Members,
    Note,
    Topics,
    is_settled,
    numbers,
    read,
)

CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}


async def settle(members: Members, *consumers: Consumer, shares: list[int]) -> None:
    """Poll until the members have as many partitions as `shares` says, the fewest first."""

    def are_settled() -> bool:
        counts = sorted(len(consumer.assignment()) for consumer in consumers)
        return counts == shares and is_settled(consumers, sum(shares))

    await members.poll_until(consumers, are_settled)


async def test_members_share_partitions_and_keep_those_that_do_not_move(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(6)
    for partition in range(6):
        topics.fill(topic, range(20), partition)
    note = Note()
    first = await members.start(topic, listener=note, **CONSUMER)
    records = await members.poll_until([first], lambda: is_settled([first], 6))
    second = await members.start(topic, **CONSUMER)

    def are_sharing() -> bool:
        return len(second.assignment()) == 3 and is_settled([first, second], 6)

    records += await members.poll_until([first, second], are_sharing)
    while len(records) < 120:
        records += await members.poll_once(first, second)
    moved = numbers(second.assignment())
    assert note.calls == [
        ("assigned", [0, 1, 2, 3, 4, 5]),
        ("revoked", moved),
        ("assigned", []),
    ]
    assert first.health().group_protocol == "consumer"
    await second.stop()
    await settle(members, first, shares=[6])
    assert note.calls[3:] == [("assigned", moved)]
    # Every record was read once: positions were committed before their partitions moved.
    assert len({(record.partition, record.offset) for record in records}) == len(records) == 120
    assert await members.poll_once(first) == []


async def test_a_static_member_returns_to_its_partitions_and_nobody_else_notices(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(4)
    note = Note()
    first = await members.start(topic, listener=note, group_instance_id="one", **CONSUMER)
    second = await members.start(topic, group_instance_id="two", **CONSUMER)
    await settle(members, first, second, shares=[2, 2])
    share, calls = second.assignment(), list(note.calls)
    await second.stop()
    again = await members.start(topic, group_instance_id="two", **CONSUMER)
    await settle(members, first, again, shares=[2, 2])
    assert again.assignment() == share
    assert note.calls == calls
    await again.stop(leave=True)
    await settle(members, first, shares=[4])


@pytest.mark.long
async def test_the_broker_matches_a_pattern_with_topics_that_appear_later(
    topics: Topics, members: Members
) -> None:
    name = f"by-broker-{uuid.uuid4().hex[:8]}"
    topics.create(1, name=f"{name}-a")
    consumer = members.make(**CONSUMER)
    consumer.subscribe(broker_pattern=f"{name}-.*")
    await consumer.start()
    await settle(members, consumer, shares=[1])
    topics.create(2, name=f"{name}-b")
    topics.create(2, name=f"not-{name}-c")
    # The broker resolves patterns again at the next change of the subscription, or after minutes.
    consumer.subscribe(broker_pattern=f"{name}-[ab].*")
    await settle(members, consumer, shares=[3])
    assert {tp.topic for tp in consumer.assignment()} == {f"{name}-a", f"{name}-b"}


async def test_a_changed_subscription_is_reported_at_once(topics: Topics, members: Members) -> None:
    one, two = topics.create(2), topics.create(3)
    note = Note()
    consumer = await members.start(one, listener=note, **CONSUMER)
    await settle(members, consumer, shares=[2])
    consumer.subscribe([two], listener=note)
    await settle(members, consumer, shares=[3])
    assert consumer.assignment() == {TopicPartition(two, index) for index in range(3)}
    assert note.calls[1:] == [("revoked", [0, 1]), ("assigned", []), ("assigned", [0, 1, 2])]


async def test_a_member_that_is_not_polled_leaves_and_is_told_that_its_partitions_are_lost(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    note = Note()
    first = await members.start(topic, listener=note, max_poll_interval_ms=1_000, **CONSUMER)
    await settle(members, first, shares=[2])
    second = await members.start(topic, **CONSUMER)
    # `first` is not polled, so it does not give up its share before it leaves.
    await settle(members, second, shares=[2])
    assert note.calls == [("assigned", [0, 1])]
    await settle(members, first, second, shares=[1, 1])
    assert note.calls[1] == ("lost", [0, 1])
    assert note.calls[-1] == ("assigned", numbers(first.assignment()))


@pytest.mark.parametrize(
    "settings",
    [CONSUMER, pytest.param({"session_timeout_ms": 3_000}, marks=pytest.mark.long)],
    ids=["consumer", "classic"],
)
async def test_an_event_loop_that_is_blocked_does_not_stop_the_heartbeats(
    topics: Topics, members: Members, settings: dict[str, Any]
) -> None:
    topic = topics.create(2)
    first = await members.start(topic, **settings)
    second = await members.start(topic, **settings)
    await settle(members, first, second, shares=[1, 1])
    before = first.metrics()["heartbeat-total"], first.group_metadata()
    # Blocks the loop on purpose; a classic member would lose its session meanwhile.
    time.sleep(1 if settings is CONSUMER else 4.5)  # noqa: ASYNC251
    after = first.metrics()["heartbeat-total"]
    assert before[0] is not None
    assert after is not None
    assert after > before[0]
    await members.poll_once(first, second)
    assert first.group_metadata() == before[1]


async def test_commits_follow_the_epoch_and_former_members_cannot_commit(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    topics.fill(topic, range(5))
    first = await members.start(topic, enable_auto_commit=False, **CONSUMER)
    await settle(members, first, shares=[2])
    kept = TopicPartition(topic, 0)
    epoch = first.group_metadata().generation_id
    pending = [asyncio.create_task(first.commit({kept: offset})) for offset in range(3)]
    second = await members.start(topic, enable_auto_commit=False, **CONSUMER)
    await settle(members, first, second, shares=[1, 1])
    await asyncio.gather(*pending)
    assert first.group_metadata().generation_id > epoch
    (owned,) = first.assignment()
    await first.commit({owned: 3})
    assert await second.committed(owned) == 3
    await first.stop()
    with pytest.raises(errors.ConsumerClosedError):
        await first.commit({owned: 4})


@pytest.mark.parametrize("protocol", ["auto", "consumer"])
async def test_a_classic_member_and_one_of_the_new_protocol_share_a_group(
    protocol: str, topics: Topics, members: Members
) -> None:
    topic = topics.create(4)
    topics.fill(topic, range(10))
    classic = await members.start(topic, partition_assignment_strategy="range")
    await members.settle(classic, partitions=4)
    consumer = await members.start(topic, group_protocol=protocol)
    poll = partial(members.poll_until, [classic, consumer])

    def is_shared() -> bool:
        return len(classic.assignment()) == len(consumer.assignment()) == 2

    await poll(is_shared)
    assert consumer.health().group_protocol == "consumer"
    await classic.stop()
    await settle(members, consumer, shares=[4])


async def test_an_unknown_assignor_is_reported_by_the_poll_with_the_brokers_words(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(1)
    consumer = await members.start(topic, group_remote_assignor="nonsense", **CONSUMER)
    with pytest.raises(errors.ConsumerError, match=r"UNSUPPORTED_ASSIGNOR|not supported"):
        await read(consumer, 1)


@pytest.mark.parametrize("count", [3, pytest.param(10, marks=pytest.mark.long)])
async def test_a_group_is_upgraded_and_downgraded_member_by_member_under_load(
    count: int, topics: Topics, members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create(12)
    read_by: dict[tuple[int, int], list[Note]] = {}
    uncommitted: set[Note] = set()
    written = 0
    is_over = asyncio.Event()

    async def process(consumer: Consumer, note: Note, stop: asyncio.Event) -> None:
        while not stop.is_set():
            for record in await members.poll_once(consumer):
                read_by.setdefault((record.partition, record.offset), []).append(note)
        await consumer.stop()

    async def write() -> None:
        nonlocal written
        while not is_over.is_set():
            await asyncio.to_thread(topics.fill, topic, range(10), written // 10 % 12)
            written += 10
            await asyncio.sleep(0.01)

    async def start(protocol: str) -> tuple[asyncio.Task[None], asyncio.Event]:
        stop, note = asyncio.Event(), Note()
        consumer = await members.start(topic, listener=note, group_protocol=protocol)
        return asyncio.create_task(process(consumer, note, stop)), stop

    running = [await start("classic") for _ in range(count)]
    writing = asyncio.create_task(write())
    for protocol in ("consumer", "classic"):
        for _ in range(count):
            task, stop = running.pop(0)
            stop.set()
            await task
            running.append(await start(protocol))
            await asyncio.sleep(0.2)
    is_over.set()
    await writing
    async with asyncio.timeout(TIMEOUT_S):
        while len(read_by) < written:  # noqa: ASYNC110 - the members read in other tasks.
            await asyncio.sleep(0.1)
    for task, stop in running:
        stop.set()
        await task
    check_read_once(read_by, uncommitted)


def check_read_once(
    read_by: dict[tuple[int, int], list[Note]], uncommitted: Collection[Note]
) -> None:
    """A member that stops or gives up partitions has committed what it read, unless it says that
    it could not because the group was rebalancing. One that lost them could not either: when the
    last consumer leaves, classic members of an older epoch are fenced.
    """
    for (partition, _), notes in read_by.items():
        for note in notes[:-1]:
            lost = (lost for name, lost in note.calls if name == "lost")
            assert note in uncommitted or any(partition in numbers for numbers in lost)
