"""Deserialisers, and the error for data that they reject."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from kohort.client.core.errors import DeserialisationError
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord

Deserialiser: TypeAlias = Callable[[Any], Any]
"""Takes bytes or None; typed loosely so that functions that refuse None, such as json.loads, are
accepted. Returns the key or value; may be a coroutine function."""


@dataclass(slots=True, eq=False)
class Deserialisers:
    """The functions that turn bytes into keys and values; None leaves them as bytes. They are
    looked up for each record, so that they can be replaced temporarily.
    """

    key: Deserialiser | None = None
    value: Deserialiser | None = None

    @property
    def are_there(self) -> bool:
        return self.key is not None or self.value is not None

    @property
    def have_coroutines(self) -> bool:
        return _is_coroutine_function(self.key) or _is_coroutine_function(self.value)


NO_DESERIALISERS: Final = Deserialisers()


class NotMadeYet(Exception):  # noqa: N818 - not an error: the records come later.
    """The next record of a partition is still being deserialised."""


class BackgroundDeserialiser(Protocol):
    """Runs deserialisers that are coroutine functions, in background tasks."""

    def is_making(self, partition: TopicPartition) -> bool:
        """Whether a task is deserialising the next records; if so, `take` raises NotMadeYet."""

    def take(self, partition: TopicPartition, records: list[AnyRecord]) -> list[AnyRecord]:
        """Return the leading records of `records` that are deserialised.

        Raises:
            NotMadeYet: none is ready; deserialising has been started.
            DeserialisationError: the first record could not be deserialised. The next call retries
                it.
        """

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Cancel the tasks of these partitions and drop their results."""

    def clear(self) -> None:
        """Cancel all tasks and drop all results."""


def refused(record: AnyRecord, what: str, error: BaseException) -> DeserialisationError:
    """Create the error for a record whose `what` (key or value) cannot be deserialised."""
    return DeserialisationError(
        f"{record.topic}-{record.partition}: the {what} of the record at offset {record.offset}"
        f" cannot be deserialised: {error!r}",
        record,
    )


def _is_coroutine_function(read: Deserialiser | None) -> bool:
    if read is None or inspect.iscoroutinefunction(read):
        return read is not None
    return inspect.iscoroutinefunction(getattr(read, "__call__", None))  # noqa: B004 - an object's
