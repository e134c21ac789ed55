"""One attempt at one record: deserialise its key and value, then call the handler."""

from __future__ import annotations

import asyncio
import inspect

from kohort.client.core.fetch.deserialisers import Deserialiser
from kohort.client.core.work import Item
from kohort.client.deserialising import deserialised
from kohort.client.processing.options import Handler


class Attempts:
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
        """Deserialise the record and wait until its handler has returned.

        Raises:
            DeserialisationError: a plain-function deserialiser raised; another attempt would not
                help.
            TimeoutError: the attempt took longer than `timeout_ms` and was cancelled, even if the
                handler suppressed that.
            Exception: whatever the handler, or a deserialiser's coroutine, raised.
        """
        if self._timeout_ms is None:
            await self._make(item)
            return
        timeout = asyncio.timeout(self._timeout_ms / 1000)
        cause: Exception | None = None
        try:
            async with timeout:
                await self._make(item)
        except Exception as error:
            if not timeout.expired():
                raise
            cause = error
        # Also if the handler suppressed its cancellation: its work may be incomplete.
        if timeout.expired():
            raise TimeoutError(
                f"the handler did not return within handler_timeout_ms ({self._timeout_ms})"
            ) from cause

    async def _make(self, item: Item) -> None:
        record = item.made
        if record is None:
            record = item.record
            if self._read_key is not None or self._read_value is not None:
                record = await deserialised(record, self._read_key, self._read_value)
            item.made = record
        answer = self._handler(record)
        if answer is not None and inspect.isawaitable(answer):
            await answer
