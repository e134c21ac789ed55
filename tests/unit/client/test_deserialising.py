"""Deserialisers that are coroutine functions."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import pytest

from kohort.client.core.errors import DeserialisationError, RecordError
from kohort.client.core.fetch.batches import Fetched
from kohort.client.core.fetch.buffers import FetchBuffers
from kohort.client.core.fetch.deserialisers import Deserialisers, NotMadeYet
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.partitions import TopicPartition
from kohort.client.deserialising import AHEAD_RECORDS, CALLS_LIMIT, DeserialisingTasks
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support.records.batches import READ
from tests.support.waiting import turns

A, B = (TopicPartition("t", index) for index in range(2))
Read: TypeAlias = Callable[[bytes], Awaitable[int]]
COUNT = 2 * AHEAD_RECORDS + 5


class Registry:
    """A deserialiser that waits for leave, as for an answer of a network."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked: list[bytes] = []
        self.refused: set[bytes] = set()

    async def __call__(self, data: bytes) -> int:
        self.asked.append(data)
        await self.may_answer.wait()
        if data in self.refused:
            raise LookupError("no such schema")
        return int(data)


class Fixture:
    """Buffers of some partitions, each with records whose values are their offsets."""

    def __init__(self, read: Read, *partitions: TopicPartition) -> None:
        self.positions = Positions()
        self.positions.set_assigned(partitions)
        self.failures: list[RecordError] = []
        self.changed = asyncio.Event()
        deserialisers = Deserialisers(value=read)
        assert deserialisers.have_coroutines
        self.awaiting = DeserialisingTasks(deserialisers, on_made=self.changed.set)
        self.options = READ._replace(deserialisers=deserialisers, background=self.awaiting)
        self.buffers = FetchBuffers(
            self.positions,
            inflated_bytes_limit=1 << 20,
            on_less=lambda _partition, _bytes: None,
            on_failed=lambda _, error: self.failures.append(error),
            background=self.awaiting,
        )
        for one in partitions:
            self.positions.seek(one, 0)
            self.fill(one)

    def fill(self, partition: TopicPartition, count: int = COUNT) -> None:
        batch = encode_batch([Record(b"%d" % offset) for offset in range(count)])
        chunk = Fetched(partition, memoryview(batch), self.options)
        self.buffers.add(partition, self.positions.state(partition).fence, chunk)

    async def wait_made(self) -> None:
        await self.changed.wait()
        self.changed.clear()

    async def wait_taken(self, max_records: int) -> list[int]:
        while not (taken := self.buffers.take(max_records)) and not self.failures:
            await self.wait_made()
        return [record.value for records in taken.values() for record in records]


@pytest.mark.parametrize("max_records", [1, 7, 1_000])
async def test_all_records_are_returned_once_and_in_order(max_records: int) -> None:
    registry = Registry()
    registry.may_answer.set()
    one = Fixture(registry, A)
    taken: list[int] = []
    while len(taken) < COUNT:
        taken += await one.wait_taken(max_records)
        assert one.positions.position(A) == len(taken)
    assert taken == list(range(COUNT))
    assert registry.asked == [b"%d" % number for number in taken], "each once"


async def test_records_are_read_one_by_one() -> None:
    registry = Registry()
    registry.may_answer.set()
    one = Fixture(registry, A)
    values: list[int] = []
    while len(values) < COUNT:
        if (record := one.buffers.next_record()) is None:
            await one.wait_made()
        else:
            values.append(record.value)
            assert one.positions.position(A) == len(values)
    assert values == list(range(COUNT))


async def test_nothing_is_readable_or_processed_while_records_are_made() -> None:
    registry = Registry()
    one = Fixture(registry, A)
    assert one.buffers.take(10) == {}
    await turns()
    assert not one.buffers.has_readable()
    assert (one.buffers.take(10), one.positions.position(A)) == ({}, 0)
    registry.may_answer.set()
    await one.wait_made()
    assert one.buffers.has_readable()
    assert [record.value for record in one.buffers.take(3)[A]] == [0, 1, 2]
    assert registry.asked[0] == b"0"
    assert registry.asked.count(b"0") == 1


async def test_at_most_so_many_records_are_in_deserialisers_at_once() -> None:
    registry = Registry()
    partitions = [TopicPartition("t", index) for index in range(CALLS_LIMIT + 8)]
    one = Fixture(registry, *partitions)
    assert one.buffers.take(10) == {}
    await turns()
    assert len(registry.asked) == CALLS_LIMIT
    one.buffers.clear()


async def test_what_a_deserialiser_raises_comes_with_the_raw_record() -> None:
    registry = Registry()
    registry.may_answer.set()
    registry.refused = {b"3"}
    one = Fixture(registry, A)
    assert await one.wait_taken(100) == [0, 1, 2]
    assert await one.wait_taken(100) == []
    (error,) = one.failures
    assert isinstance(error, DeserialisationError)
    assert (error.record.value, error.offset, error.next_offset) == (b"3", 3, 4)
    assert isinstance(error.__cause__, LookupError)
    assert "the value of the record at offset 3 cannot be deserialised" in str(error)
    assert "seek to 4" in str(error)
    assert one.positions.position(A) == 3


async def test_a_deserialiser_that_is_cancelled_from_within_is_an_error_of_its_record() -> None:
    async def give_up(_data: bytes) -> int:
        raise asyncio.CancelledError

    one = Fixture(give_up, A)
    assert await one.wait_taken(10) == []
    assert isinstance(one.failures[0], DeserialisationError)


async def test_what_is_made_for_a_position_that_is_left_is_given_up() -> None:
    registry = Registry()
    one = Fixture(registry, A, B)
    assert one.buffers.take(10) == {}
    await turns()
    one.positions.seek(A, 100)
    one.buffers.drop_outdated()
    assert not one.awaiting.is_making(A)
    assert one.awaiting.is_making(B)
    registry.may_answer.set()
    assert (await one.wait_taken(1)) == [0]
    assert one.positions.position(B) == 1


async def test_another_record_of_the_same_offset_is_not_answered_with_the_one_before() -> None:
    registry = Registry()
    registry.may_answer.set()
    one = Fixture(registry, A)
    assert one.buffers.take(1) == {}
    await one.wait_made()
    records = Fetched(A, memoryview(encode_batch([Record(b"77")])), READ).read(0, 1)
    with pytest.raises(NotMadeYet):
        one.awaiting.take(A, records)
    await one.wait_made()
    assert [record.value for record in one.awaiting.take(A, records)] == [77]


def test_functions_that_have_coroutines_are_known_by_their_kind() -> None:
    async def plain_name(_data: bytes) -> int:
        return 0

    for read in (plain_name, partial(plain_name), Registry()):
        assert Deserialisers(key=read).have_coroutines
    assert not Deserialisers(int, str).have_coroutines
    assert not Deserialisers().have_coroutines


async def test_a_partition_that_is_given_up_is_not_deserialised_further() -> None:
    """Even if the deserialiser suppresses its cancellation."""
    asked: list[bytes] = []

    async def read(data: bytes) -> int:
        asked.append(data)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return int(data)

    one = Fixture(read, A)
    assert one.buffers.take(10) == {}
    await turns()
    one.awaiting.forget([A])
    await turns()
    assert asked == [b"0"]
