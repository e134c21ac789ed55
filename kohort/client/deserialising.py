"""Deserialisers that are coroutine functions: tasks make keys and values ahead of the polls.

What they make waits here until it is taken, beside the raw records, which stay where they are
until then: a poll that is cancelled, or whose time is over, loses neither a record nor work.

A consumer whose deserialisers are plain functions has none of this.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from kohort.client.core.errors import DeserialisationError
from kohort.client.core.fetch.deserialisers import (
    BackgroundDeserialiser,
    Deserialiser,
    Deserialisers,
    NotMadeYet,
    refused,
)
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord

AHEAD_RECORDS: Final = 64
"""How many records of one partition are made ahead of being taken, at most."""

CALLS_LIMIT: Final = 32
"""How many records are in a deserialiser at once, of all partitions together; one of each."""


async def deserialised(
    record: AnyRecord, read_key: Deserialiser | None, read_value: Deserialiser | None
) -> AnyRecord:
    """The record with what these made of its key and value.

    Raises:
        DeserialisationError: a deserialiser has raised when it was called.
        whatever one raised while it was awaited.
    """
    key, value = record.key, record.value
    if read_key is not None:
        key = await _read(read_key, key, "key", record)
    if read_value is not None:
        value = await _read(read_value, value, "value", record)
    return record._replace(key=key, value=value)


async def _read(read: Deserialiser, data: Any, what: str, record: AnyRecord) -> Any:  # noqa: ANN401
    try:
        made = read(data)
    except Exception as error:
        raise refused(record, what, error) from error
    if inspect.isawaitable(made):
        awaited: Awaitable[Any] = made
        return await awaited
    return made


@dataclass(slots=True, eq=False)
class _Making:
    """The records of one partition that are being made, or wait to be taken."""

    made: dict[int, tuple[AnyRecord, AnyRecord | DeserialisationError]]
    """By offset: the raw record, and what came of it."""
    task: asyncio.Task[None] | None = None


class DeserialisingTasks(BackgroundDeserialiser):
    """Calls the deserialisers of one consumer in tasks, one for each partition at a time."""

    def __init__(self, deserialisers: Deserialisers, *, on_made: Callable[[], object]) -> None:
        """`on_made`: records can be taken, or an error is to be raised."""
        self._deserialisers = deserialisers
        self._on_made = on_made
        self._calls = asyncio.Semaphore(CALLS_LIMIT)
        self._making: dict[TopicPartition, _Making] = {}

    def is_making(self, partition: TopicPartition) -> bool:
        """Is a task making records of this partition, so that `take` would find none?"""
        making = self._making.get(partition)
        return making is not None and making.task is not None

    def take(self, partition: TopicPartition, records: list[AnyRecord]) -> list[AnyRecord]:
        """The first of these, as they were made.

        Raises:
            NotMadeYet: there is none; they are being made from now on.
            DeserialisationError: the first of them could not be made. It is tried again when it is
                asked for again.
        """
        making = self._making.get(partition)
        taken: list[AnyRecord] = []
        for record in records if making is not None and making.task is None else ():
            assert making is not None
            raw, made = making.made.get(record.offset, (None, None))
            # The same offset of a topic that was deleted and created again is another record.
            if made is None or raw != record:
                break
            if isinstance(made, DeserialisationError):
                if taken:
                    break
                del making.made[record.offset]
                raise made
            del making.made[record.offset]
            taken.append(made)
        if taken:
            return taken
        if not self.is_making(partition):
            making = self._making[partition] = _Making({})
            making.task = asyncio.get_running_loop().create_task(
                self._make(partition, making, records[:AHEAD_RECORDS]),
                name=f"deserialise {partition.topic}-{partition.partition}",
            )
        raise NotMadeYet

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Cancel the tasks of these partitions and drop what they have made."""
        for partition in partitions:
            making = self._making.pop(partition, None)
            if making is not None and making.task is not None:
                making.task.cancel()

    def clear(self) -> None:
        """Forget everything."""
        self.forget(list(self._making))

    async def _make(
        self, partition: TopicPartition, making: _Making, records: list[AnyRecord]
    ) -> None:
        read_key, read_value = self._deserialisers.key, self._deserialisers.value
        for record in records:
            async with self._calls:
                made = await _outcome(record, read_key, read_value)
            making.made[record.offset] = record, made
            if isinstance(made, DeserialisationError):
                break
        making.task = None
        if self._making.get(partition) is making:
            self._on_made()


async def _outcome(
    record: AnyRecord, read_key: Deserialiser | None, read_value: Deserialiser | None
) -> AnyRecord | DeserialisationError:
    what = "key"
    try:
        record_so_far = await deserialised(record, read_key, None)
        what = "value"
        made = await deserialised(record_so_far, None, read_value)
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        cause = error.__cause__ if isinstance(error, DeserialisationError) else None
        cause = error if cause is None else cause
        failure = refused(record, what, cause)
        failure.__cause__ = cause
        return failure
    return made
