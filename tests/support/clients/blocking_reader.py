"""Consumers whose application holds up their loop, each in a thread with a loop of its own."""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from kohort import Consumer, RebalanceListener

MAY_GO_ON_WITHIN_S = 60


class BlockingReader(ABC):
    """Reads a topic in a group, next to another member, and once does not let its loop run.

    It does so as soon as `may_block` is set: in its handler of a record, or in a callback for
    assigned partitions. `is_blocked` is set meanwhile. It takes `block_s`, and as much longer as
    it takes until `may_go_on` is set. Then it reads on and commits.
    """

    def __init__(
        self,
        bootstrap: str,
        name: str,
        *,
        session_timeout_ms: int,
        block_s: float,
        in_callback: bool = False,
    ) -> None:
        """`name` is that of the topic and the group."""
        self.settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "group_id": name,
            "client_id": name,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": session_timeout_ms // 6,
        }
        self.topic = name
        self.read: list[tuple[int, int]] = []
        """Partition and offset, in the order of reading."""
        self.assigned: set[int] = set()
        self.may_block = threading.Event()
        self.is_blocked = threading.Event()
        self.may_go_on = threading.Event()
        self.is_over = threading.Event()
        self.before: object = None
        self.after: object = None
        """The identity in the group when the loop was held up, and at the end."""
        self.commit_error: BaseException | None = None
        self.failure: BaseException | None = None
        self._block_s = block_s
        self._in_callback = in_callback
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @abstractmethod
    async def run(self) -> None:
        """Reads until `leaving`, with `took` for every record and `got` for every assignment."""

    @property
    def leaving(self) -> bool:
        return self._leaving.is_set()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def got(self, partitions: Collection[int]) -> None:
        """A callback's part."""
        if self._in_callback and partitions and self.may_block.is_set():
            self._block()
        self.assigned = set(partitions)

    def took(self, partition: int, offset: int) -> None:
        """A handler's part."""
        self.read.append((partition, offset))
        if not self._in_callback and self.may_block.is_set():
            self._block()

    def _block(self) -> None:
        if self.is_over.is_set():
            return
        self.before = self.identity()
        self.is_blocked.set()
        time.sleep(self._block_s)
        self.may_go_on.wait(MAY_GO_ON_WITHIN_S)
        self.is_over.set()

    @abstractmethod
    def identity(self) -> object:
        """Generation and member id."""

    def _run(self) -> None:
        try:
            asyncio.run(self.run())
        except BaseException as error:  # noqa: BLE001 - looked at by the test.
            self.failure = error
        finally:
            self.is_blocked.set()
            self.is_over.set()


class _Listener(RebalanceListener):
    def __init__(self, reader: BlockingReader) -> None:
        self._reader = reader

    def on_assigned(self, partitions: Collection[Any]) -> None:
        self._reader.got([one.partition for one in partitions])


class KohortReader(BlockingReader):
    _consumer: Consumer

    async def run(self) -> None:
        async with Consumer(**self.settings) as self._consumer:
            self._consumer.subscribe([self.topic], listener=_Listener(self))
            while not self.leaving:
                for records in (await self._consumer.poll(0.1)).values():
                    for record in records:
                        self.took(record.partition, record.offset)
            self.after = self.identity()
            try:
                await self._consumer.commit()
            except Exception as error:  # noqa: BLE001 - looked at by the test.
                self.commit_error = error

    def identity(self) -> object:
        return self._consumer.group_metadata()


class _AiokafkaListener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, reader: BlockingReader) -> None:
        self._reader = reader

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        pass

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._reader.got([one.partition for one in assigned])


class AiokafkaReader(BlockingReader):
    _consumer: AIOKafkaConsumer

    async def run(self) -> None:
        strategy = (RangePartitionAssignor,)
        self._consumer = AIOKafkaConsumer(**self.settings, partition_assignment_strategy=strategy)
        self._consumer.subscribe([self.topic], listener=_AiokafkaListener(self))
        await self._consumer.start()
        try:
            while not self.leaving:
                for records in (await self._consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        self.took(record.partition, record.offset)
            self.after = self.identity()
            try:
                await self._consumer.commit()
            except Exception as error:  # noqa: BLE001 - looked at by the test.
                self.commit_error = error
        finally:
            await self._consumer.stop()

    def identity(self) -> object:
        coordinator = self._consumer._coordinator
        return coordinator.generation, coordinator.member_id
