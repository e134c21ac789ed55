"""What makes keys and values of bytes, and what is told when it refuses to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from kohort.client.core.errors import DeserialisationError
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord

Deserialiser: TypeAlias = Callable[[Any], Any]
"""Is given bytes, or None; typed loosely so that what refuses None, like json.loads, is one too. It
returns the key or value, or is a coroutine function of it."""


@dataclass(slots=True, eq=False)
class Deserialisers:
    """What makes keys and values of bytes; None leaves them as bytes. They are looked at for each
    record, so that they can be put aside for a while.
    """

    key: Deserialiser | None = None
    value: Deserialiser | None = None

    @property
    def have_coroutines(self) -> bool:
        """Whether one of them is a coroutine function."""
        return _is_coroutine_function(self.key) or _is_coroutine_function(self.value)


NO_DESERIALISERS: Final = Deserialisers()


class NotMadeYet(Exception):  # noqa: N818 - not an error: what is asked for comes later.
    """The next record of a partition is in its deserialisers."""


class BackgroundDeserialiser(Protocol):
    """Calls deserialisers that are coroutine functions, in tasks of its own."""

    def is_making(self, partition: TopicPartition) -> bool:
        """Is a task making records of this partition, so that `take` would find none?"""

    def take(self, partition: TopicPartition, records: list[AnyRecord]) -> list[AnyRecord]:
        """The first of these, as they were made.

        Raises:
            NotMadeYet: there is none; they are being made from now on.
            DeserialisationError: the first of them could not be made. It is tried again when it
                is asked for again.
        """

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Cancel the tasks of these partitions and drop what they have made."""

    def clear(self) -> None:
        """Forget everything."""


def refused(record: AnyRecord, what: str, error: BaseException) -> DeserialisationError:
    """What is raised for a record of which `what` cannot be deserialised."""
    return DeserialisationError(
        f"{record.topic}-{record.partition}: the {what} of the record at offset {record.offset}"
        f" cannot be deserialised: {error!r}",
        record,
    )


def _is_coroutine_function(read: Deserialiser | None) -> bool:
    if read is None or inspect.iscoroutinefunction(read):
        return read is not None
    return inspect.iscoroutinefunction(getattr(read, "__call__", None))  # noqa: B004 - an object's
