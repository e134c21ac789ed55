"""Runs deserialisers that are coroutine functions in background tasks, ahead of the polls.

Results are kept here, and raw records in the fetch buffer, until a poll takes them: a poll that is
cancelled or times out loses neither records nor work.

None of this is used when the deserialisers are plain functions.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection
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
"""Maximum number of records of one partition that are deserialised in advance."""

CALLS_LIMIT: Final = 32
"""Maximum number of partitions in which a record is being deserialised; one record in each."""


async def deserialised(
    record: AnyRecord, read_key: Deserialiser | None, read_value: Deserialiser | None
) -> AnyRecord:
    """Return the record with its key and value deserialised.

    Raises:
        DeserialisationError: a deserialiser raised when it was called.
        Exception: whatever a deserialiser's coroutine raised.
    """
    key, value = record.key, record.value
    if read_key is not None:
        key = _read(read_key, key, "key", record)
        if inspect.isawaitable(key):
            key = await key
    if read_value is not None:
        value = _read(read_value, value, "value", record)
        if inspect.isawaitable(value):
            value = await value
    return record._replace(key=key, value=value)


def _read(read: Deserialiser, data: Any, what: str, record: AnyRecord) -> Any:  # noqa: ANN401
    try:
        return read(data)
    except Exception as error:
        raise refused(record, what, error) from error


@dataclass(slots=True, eq=False)
class _Making:
    """The records of one partition that are being deserialised or are ready to be taken."""

    made: dict[int, tuple[AnyRecord, AnyRecord | DeserialisationError]]
    """Raw record, and deserialised record or error, by offset."""
    task: asyncio.Task[None] | None = None


class DeserialisingTasks(BackgroundDeserialiser):
    """Runs the deserialisers of one consumer in background tasks, one task per partition;
    `BackgroundDeserialiser` documents the methods.
    """

    def __init__(self, deserialisers: Deserialisers, *, on_made: Callable[[], object]) -> None:
        """`on_made` is called when a poll can take records or an error."""
        self._deserialisers = deserialisers
        self._on_made = on_made
        self._calls = asyncio.Semaphore(CALLS_LIMIT)
        self._making: dict[TopicPartition, _Making] = {}

    def is_making(self, partition: TopicPartition) -> bool:
        making = self._making.get(partition)
        return making is not None and making.task is not None

    def take(self, partition: TopicPartition, records: list[AnyRecord]) -> list[AnyRecord]:
        making = self._making.get(partition)
        taken: list[AnyRecord] = []
        for record in records if making is not None and making.task is None else ():
            assert making is not None
            raw, made = making.made.get(record.offset, (None, None))
            # In a topic that was deleted and recreated the same offset is a different record.
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
        for partition in partitions:
            making = self._making.pop(partition, None)
            if making is not None and making.task is not None:
                making.task.cancel()

    def clear(self) -> None:
        self.forget(list(self._making))

    async def _make(
        self, partition: TopicPartition, making: _Making, records: list[AnyRecord]
    ) -> None:
        read_key, read_value = self._deserialisers.key, self._deserialisers.value
        for record in records:
            async with self._calls:
                made = await _outcome(record, read_key, read_value)
            if self._making.get(partition) is not making:
                return  # Cancelled, but the deserialiser suppressed that.
            making.made[record.offset] = record, made
            if isinstance(made, DeserialisationError):
                break
        making.task = None
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
