"""Reading records as text, for programs that only print them: three times as fast as records are.

The consumer works as ever, with its positions, rebalances and errors; only what it makes of a batch
is different.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack, cast

from kohort.client.config import OtherSettings
from kohort.client.consumer.consumer import Consumer
from kohort.client.core.fetch.batch_context import BatchContext
from kohort.client.core.fetch.text import Text, TextForm
from kohort.client.core.fetch.unpack import Unpacked, unpack_text
from kohort.client.core.partitions import TopicPartition

NO_END: Final = (1 << 63) - 1


class TextConsumer(Consumer[Any, Any]):
    """A consumer without deserialisers that is read by `read_text` alone."""

    def __init__(
        self,
        *topics: str,
        form: TextForm,
        ends: Mapping[TopicPartition, int] | None = None,
        **settings: Unpack[OtherSettings],
    ) -> None:
        """`ends`: records from these offsets on are passed over. Raises as `Consumer`."""
        super().__init__(*topics, **settings)
        self._form = form
        self._stops = ends or {}

    async def read_text(self, timeout_ms: int, max_records: int) -> tuple[list[bytes], int]:
        """Return the text of at most `max_records` records, in parts, and how many they are. Waits
        and raises as `getmany` does.
        """
        self._running().deserialisers.unpack = self._unpack
        found = await self.getmany(timeout_ms=timeout_ms, max_records=max_records)
        texts = cast("list[Text]", list(found.values()))
        return [part for text in texts for part in text.parts], sum(map(len, texts))

    def _unpack(
        self,
        block: bytes,
        position: int,
        left: int,
        source: BatchContext,
        floor: int,
        wanted: int,
    ) -> Unpacked:
        end = self._stops.get(TopicPartition(source.topic, source.partition), NO_END)
        found = unpack_text(block, position, left, source, floor, end, wanted, self._form)
        # A text does what a list of records does between here and `read`.
        return cast("Unpacked", found)
