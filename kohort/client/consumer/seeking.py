"""Positions set by the application, and offset lookups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kohort.client.core.offsets import OffsetAndMetadata, OffsetAndTimestamp, OffsetSpec
from kohort.client.core.partitions import TopicPartition
from kohort.client.engine.engine import Engine
from kohort.client.fetch.offset_lookup import list_offsets


def seek(engine: Engine, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
    if isinstance(offset, OffsetAndMetadata):
        engine.positions.seek(partition, offset.offset, offset.leader_epoch)
    else:
        engine.positions.seek(partition, offset)
    engine.wake()


def seek_to(engine: Engine, partitions: Collection[TopicPartition], spec: OffsetSpec) -> None:
    """Continue these partitions, or all if none are given, from an offset that is looked up."""
    for partition in _chosen(engine, partitions):
        engine.positions.seek_to(partition, spec)
    engine.wake()


async def seek_to_committed(
    engine: Engine, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    states = {tp: engine.positions.state(tp) for tp in _chosen(engine, partitions)}
    committed_offsets = await engine.group_commits().committed(list(states))
    for partition, committed in committed_offsets.items():
        # A partition that was revoked and reassigned meanwhile starts at its group's newer offset.
        if committed is not None and engine.positions.find(partition) is states[partition]:
            engine.positions.seek(partition, committed.offset, committed.leader_epoch)
    engine.wake()
    return committed_offsets


async def ends(
    engine: Engine, partitions: Iterable[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """Look up one end of each partition."""
    offsets = await offsets_for(engine, {TopicPartition(*tp): spec for tp in partitions})
    return {partition: offset.offset for partition, offset in offsets.items() if offset is not None}


async def offsets_for(
    engine: Engine, specs: Mapping[TopicPartition, OffsetSpec]
) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
    """Look up one offset of each partition, within default_api_timeout_ms."""
    config = engine.config
    with engine.calls.call():
        return await list_offsets(
            engine.cluster,
            specs,
            config.isolation,
            config.default_api_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
        )


def _chosen(engine: Engine, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
    """Return these partitions, which must be assigned, or all assigned ones if none are given."""
    engine.check_assigned(partitions)
    return [TopicPartition(*tp) for tp in partitions] or list(engine.positions.assigned)
