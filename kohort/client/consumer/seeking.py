"""The positions of a consumer: reading and setting them, and offset lookups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kohort.client.core.offsets import (
    EARLIEST,
    LATEST,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetSpec,
    check_time,
)
from kohort.client.core.partitions import TopicPartition
from kohort.client.engine.engine import Engine
from kohort.client.fetch.offset_lookup import list_offsets


class ConsumerPositions:
    """The methods of `Consumer` about positions."""

    def _running(self) -> Engine:
        """Return the engine. Raises ConsumerError before the start and after the end."""
        raise NotImplementedError

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that will be returned.

        Raises:
            IllegalStateError: the partition is not assigned.
            OperationTimedOutError: the offset could not be determined within
                default_api_timeout_ms.
        """
        engine = self._running()
        position = engine.positions.position(partition)
        if position is None:
            position = await engine.find_position(partition)
        return position

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue reading from this offset.

        Raises:
            TypeError, ValueError: the offset is not valid.
            IllegalStateError: the partition is not assigned.
        """
        engine = self._running()
        if isinstance(offset, OffsetAndMetadata):
            engine.positions.seek(partition, offset.offset, offset.leader_epoch)
        else:
            engine.positions.seek(partition, offset)
        engine.wake()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue from the first record of these partitions, or of all."""
        self._seek_to(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record of these partitions, or of all. The end is looked up in
        the background; `position` waits for it.
        """
        self._seek_to(partitions, LATEST)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Continue from the committed offsets of these partitions, or of all, and return them.
        Partitions without a committed offset keep their position.
        """
        return await seek_to_committed(self._running(), partitions)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. Raises what `offsets_for_times` raises."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get; with read_committed
        the last stable offset. Raises what `offsets_for_times` raises.
        """
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the offset and timestamp of the first record at or after the
        given timestamp, in milliseconds since the epoch; None if there is no such record.

        Raises:
            UnknownTopicError, AuthorizationError, BrokerUnreachableError: the lookup did not
                succeed within default_api_timeout_ms.
        """
        for timestamp_ms in timestamps.values():
            check_time(timestamp_ms)
        return dict(await self._offsets_for(timestamps))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`; polling keeps the membership."""
        engine = self._running()
        engine.positions.pause(partitions)
        engine.fetcher.wake()

    def resume(self, *partitions: TopicPartition) -> None:
        engine = self._running()
        engine.positions.resume(partitions)
        engine.fetcher.wake()

    def paused(self) -> set[TopicPartition]:
        return self._running().positions.paused()

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark as of the last fetch; None before the first fetch."""
        return self._running().positions.high_watermark(partition)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end as of the last fetch: the high watermark,
        or with read_committed the last stable offset. None while either is unknown.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return self._running().positions.lag(partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The last stable offset as of the last fetch: every transaction before it has ended."""
        return self._running().positions.last_stable(partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When a broker last reported `highwater` and `last_stable_offset`, with or without
        records, in milliseconds since the epoch; None before the first report.
        """
        return self._running().positions.state(partition).learned_wall_ms

    def _seek_to(self, partitions: Collection[TopicPartition], spec: OffsetSpec) -> None:
        """Seek these partitions, or all if none are given, to an offset that is looked up later."""
        engine = self._running()
        for partition in _chosen(engine, partitions):
            engine.positions.seek_to(partition, spec)
        engine.wake()

    async def _ends(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        offsets = await self._offsets_for({TopicPartition(*tp): spec for tp in partitions})
        return {tp: offset.offset for tp, offset in offsets.items() if offset is not None}

    async def _offsets_for(
        self, specs: Mapping[TopicPartition, OffsetSpec]
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """Look up one offset of each partition, within default_api_timeout_ms."""
        engine = self._running()
        config = engine.config
        with engine.calls.call():
            return await list_offsets(
                engine.cluster,
                specs,
                config.isolation,
                config.default_api_timeout_ms,
                request_timeout_ms=config.request_timeout_ms,
            )


async def seek_to_committed(
    engine: Engine, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    states = {tp: engine.positions.state(tp) for tp in _chosen(engine, partitions)}
    committed_offsets = await engine.group_commits().committed(list(states))
    for partition, committed in committed_offsets.items():
        # Skip a partition that was reassigned meanwhile: it starts at a newer committed offset.
        if committed is not None and engine.positions.find(partition) is states[partition]:
            engine.positions.seek(partition, committed.offset, committed.leader_epoch)
    engine.wake()
    return committed_offsets


def _chosen(engine: Engine, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
    """Return these partitions, which must be assigned, or all assigned ones if none are given."""
    engine.check_assigned(partitions)
    return [TopicPartition(*tp) for tp in partitions] or list(engine.positions.assigned)
