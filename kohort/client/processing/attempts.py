"""One attempt at one record: its key and value are deserialised, and its handler is called."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from kohort.client.core.errors import DeserialisationError
from kohort.client.core.work import Item
from kohort.client.fetched import Deserialiser
from kohort.client.processing.options import Handler
from kohort.client.records import AnyRecord


class Attempts:
    """Those of one run."""

    def __init__(
        self,
        handler: Handler,
        *,
        read_key: Deserialiser | None,
        read_value: Deserialiser | None,
        timeout_ms: int | None,
    ) -> None:
        self._handler = handler
        self._read_key = read_key
        self._read_value = read_value
        self._timeout_ms = timeout_ms

    async def make(self, item: Item) -> None:
        """Return when the handler is through.

        Raises:
            DeserialisationError: a deserialiser, a plain function, has raised: it will again.
            TimeoutError: `timeout_ms` was over.
            whatever the handler raised, or a deserialiser that is a coroutine function.
        """
        if self._timeout_ms is None:
            await self._make(item)
            return
        timeout = asyncio.timeout(self._timeout_ms / 1000)
        try:
            async with timeout:
                await self._make(item)
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise TimeoutError(
                f"the handler has not returned within handler_timeout_ms ({self._timeout_ms})"
            ) from error

    async def _make(self, item: Item) -> None:
        record = item.made
        if record is None:
            record = item.record
            if self._read_key is not None or self._read_value is not None:
                record = await self._deserialised(record)
            item.made = record
        answer = self._handler(record)
        if answer is not None and inspect.isawaitable(answer):
            await answer

    async def _deserialised(self, record: AnyRecord) -> AnyRecord:
        key, value = record.key, record.value
        if self._read_key is not None:
            key = await _read(self._read_key, key, "key", record)
        if self._read_value is not None:
            value = await _read(self._read_value, value, "value", record)
        return record._replace(key=key, value=value)


async def _read(read: Callable[[Any], Any], data: Any, what: str, record: AnyRecord) -> Any:  # noqa: ANN401
    try:
        made = read(data)
    except Exception as error:
        raise DeserialisationError(
            f"{record.topic}-{record.partition}: the {what} of the record at offset"
            f" {record.offset} cannot be deserialised: {error!r}",
            record,
        ) from error
    if inspect.isawaitable(made):
        awaited: Awaitable[Any] = made
        return await awaited
    return made
