"""A fetcher on its own, as the consumer has it, and a producer for what it is to read."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from kohort.client.config import ConsumerConfig
from kohort.client.core.fetch.config import IsolationLevel
from kohort.client.core.fetch.deserialisers import NO_DESERIALISERS, Deserialisers
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.client.fetch.fetcher import Fetcher
from kohort.client.net.address import parse_bootstrap
from kohort.client.net.cluster import Cluster, ClusterConfig
from kohort.client.net.config import ConnectionConfig

TIMEOUT_S: Final = 30
EARLIEST: Final = ConsumerConfig(auto_offset_reset="earliest")


class Reader:
    """Made by `reading`."""

    def __init__(
        self, bootstrap: str, config: ConsumerConfig, deserialisers: Deserialisers
    ) -> None:
        self.cluster = Cluster(ClusterConfig(parse_bootstrap(bootstrap), ConnectionConfig()))
        reads_committed = config.isolation is IsolationLevel.READ_COMMITTED
        self.positions = Positions(reads_committed=reads_committed)
        self.refreshes = 0
        self._refreshing: asyncio.Task[None] | None = None
        self.fetcher = Fetcher(
            self.cluster, self.positions, config, deserialisers,
            on_metadata_wanted=self._refresh_soon,
        )  # fmt: skip
        self.fetcher.start()

    async def assign(self, *partitions: TopicPartition) -> None:
        self.positions.set_assigned(partitions)
        self.fetcher.assignment_changed()
        await self.fetcher.update_positions(None)

    async def read(self, count: int, at_most: int = 500) -> list[AnyRecord]:
        """The next `count` records, and no more than have to be taken for that."""
        records: list[AnyRecord] = []

        def take() -> bool:
            for some in self.fetcher.take(min(at_most, count - len(records))).values():
                records.extend(some)
            return len(records) >= count

        await self.until(take)
        return records

    async def until(self, condition: Callable[[], bool]) -> None:
        """Looks whenever the fetcher has something to tell."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await self.fetcher.wait(0.05)

    async def wait_positions(self) -> None:
        assert await self.fetcher.wait_positions(self.positions.assigned, TIMEOUT_S)

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
        await self.fetcher.close()
        await self.cluster.close()

    def _refresh_soon(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        self.refreshes += 1
        try:
            await self.cluster.refresh({one.topic for one in self.positions.assigned})
        except Exception:  # noqa: BLE001 - no answer just now; it will be asked for again.
            return
        self.fetcher.wake()


@asynccontextmanager
async def reading(
    bootstrap: str,
    *partitions: TopicPartition,
    config: ConsumerConfig = EARLIEST,
    deserialisers: Deserialisers = NO_DESERIALISERS,
) -> AsyncIterator[Reader]:
    reader = Reader(bootstrap, config, deserialisers)
    try:
        await reader.assign(*partitions)
        yield reader
    finally:
        await reader.close()


async def produce(
    bootstrap: str,
    values: Mapping[TopicPartition, list[bytes]],
    **settings: Any,  # noqa: ANN401 - aiokafka's.
) -> None:
    """Writes them, in their order within each partition."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
        sent = [
            await producer.send(partition.topic, value, partition=partition.partition)
            for partition, some in values.items()
            for value in some
        ]
        await asyncio.gather(*sent)
