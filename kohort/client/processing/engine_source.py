"""Adapts a consumer's engine to the interface that a run reads from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from kohort.client.core.fetch.buffers import Records
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.processing.source import CommitDone, Positions

if TYPE_CHECKING:
    from kohort.client.engine.engine import Engine


class EngineSource:
    """The engine of one consumer as a `Source`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._count_max = engine.config.max_poll_records
        # The time that callbacks take counts as time between polls.
        self.delay_max_s = engine.config.max_poll_interval_ms / 1000 / 2

    @property
    def assigned(self) -> Collection[TopicPartition]:
        return self._engine.positions.assigned

    @property
    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._engine.positions.consumed()

    @property
    def can_commit(self) -> bool:
        return self._engine.commits is not None

    async def poll(
        self,
        timeout_s: float,
        take: Callable[[], Any],
        only: frozenset[TopicPartition] | None,
    ) -> object:
        return await self._engine.poll(timeout_s, take, only)

    def take(self, count: int, only: frozenset[TopicPartition] | None) -> Records:
        return self._engine.fetcher.take(min(count, self._count_max), only)

    def wake(self) -> None:
        self._engine.fetcher.wake()

    async def commit(self, offsets: Positions, timeout_s: float) -> None:
        await self._engine.group_commits().offsets.commit(offsets, timeout_s)

    def commit_soon(self, offsets: Positions, on_done: CommitDone) -> None:
        self._engine.group_commits().offsets.commit_async(offsets, None, on_done=on_done)

    def go_back(self, offsets: Positions) -> None:
        positions = self._engine.positions
        for partition, state in [(one, positions.find(one)) for one in positions.assigned]:
            if state is None or state.position is None:
                continue
            known = offsets.get(partition)
            if known is None:
                positions.forget(partition)
            elif known.offset != state.position:
                positions.seek(partition, known.offset, known.leader_epoch)
        self._engine.wake()
